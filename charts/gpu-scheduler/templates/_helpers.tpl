{{- define "gpu-scheduler.name" -}}
gpu-scheduler
{{- end }}

{{- define "gpu-scheduler.fullname" -}}
{{- if contains "gpu-scheduler" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-gpu-scheduler" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "gpu-scheduler.selector" -}}
app.kubernetes.io/name: {{ include "gpu-scheduler.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gpu-scheduler.labels" -}}
{{ include "gpu-scheduler.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gpu-dev-server
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "gpu-scheduler.webhook" -}}
{{ printf "%s-webhook" (include "gpu-scheduler.fullname" .) }}
{{- end }}

{{- define "gpu-scheduler.secret" -}}
{{ printf "%s-webhook-tls" (include "gpu-scheduler.fullname" .) }}
{{- end }}

{{- define "gpu-scheduler.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}

{{- define "gpu-scheduler.webhookImage" -}}
{{- $own := .Values.webhook.image }}
{{- printf "%s:%s" ($own.repository | default .Values.image.repository) ($own.tag | default .Values.image.tag | default .Chart.AppVersion) }}
{{- end }}

{{/* Whether the certificate is ours to make and renew. */}}
{{- define "gpu-scheduler.keepsCertificates" -}}
{{- if and .Values.webhook.enabled (not .Values.webhook.caBundle) (not .Values.webhook.certManager.enabled) }}yes{{ end }}
{{- end }}

{{- define "gpu-scheduler.kubeVersion" -}}
{{ .Values.kubeVersion | default .Capabilities.KubeVersion.Version }}
{{- end }}

{{/* Kubernetes names none of its own pods' fields before 1.28 to select what a webhook is asked about. */}}
{{- define "gpu-scheduler.selectsByField" -}}
{{- if semverCompare ">=1.28.0-0" (include "gpu-scheduler.kubeVersion" .) }}yes{{ end }}
{{- end }}

{{- define "gpu-scheduler.hasPolicies" -}}
{{- if and .Values.policy.enabled (semverCompare ">=1.30.0-0" (include "gpu-scheduler.kubeVersion" .)) }}yes{{ end }}
{{- end }}

{{- define "gpu-scheduler.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "gpu-scheduler.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The Secret's data: as they are in the cluster, else made now. One answer for all templates of one rendering. */}}
{{- define "gpu-scheduler.certificates" -}}
{{- if not .Values.keptCertificates }}
{{- $found := lookup "v1" "Secret" .Release.Namespace (include "gpu-scheduler.secret" .) }}
{{- $data := dict }}
{{- if $found }}
{{- $data = $found.data }}
{{- else }}
{{- $service := include "gpu-scheduler.webhook" . }}
{{- $short := printf "%s.%s" $service .Release.Namespace }}
{{- $names := list $service $short (printf "%s.svc" $short) (printf "%s.svc.cluster.local" $short) }}
{{- $days := int .Values.webhook.certificates.validDays }}
{{- $ca := genCA (printf "%s authority" $service) $days }}
{{- $pair := genSignedCert (printf "%s.svc" $short) nil $names $days $ca }}
{{- $data = dict "ca.crt" ($ca.Cert | b64enc) "tls.crt" ($pair.Cert | b64enc) "tls.key" ($pair.Key | b64enc) }}
{{- end }}
{{- $_ := set .Values "keptCertificates" $data }}
{{- end }}
{{- end }}
