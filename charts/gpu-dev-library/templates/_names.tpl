{{/* Names, labels, and what the cluster can. All take a chart's own context; the chart's name is the component's. */}}

{{- define "gpu-dev.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Where the chart's objects are: the release's namespace, unless `namespace` says so. */}}
{{- define "gpu-dev.namespace" -}}
{{ .Values.namespace | default .Release.Namespace }}
{{- end }}

{{- define "gpu-dev.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gpu-dev.labels" -}}
{{ include "gpu-dev.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gpu-dev-server
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "gpu-dev.webhook" -}}
{{ printf "%s-webhook" (include "gpu-dev.fullname" .) }}
{{- end }}

{{- define "gpu-dev.secret" -}}
{{ printf "%s-webhook-tls" (include "gpu-dev.fullname" .) }}
{{- end }}

{{/* An image as pods name it: (list repository tag digest). With a digest the tag is for people alone. */}}
{{- define "gpu-dev.reference" -}}
{{ index . 0 }}:{{ index . 1 }}{{ with index . 2 }}@{{ . }}{{ end }}
{{- end }}

{{- define "gpu-dev.image" -}}
{{ include "gpu-dev.reference" (list .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) .Values.image.digest) }}
{{- end }}

{{/* The image of the webhook's container and of the job that renews its certificate. */}}
{{- define "gpu-dev.webhookImage" -}}
{{- $own := .Values.webhook.image | default dict }}
{{- $digest := ternary $own.digest .Values.image.digest (or $own.repository $own.tag $own.digest | empty | not) }}
{{- include "gpu-dev.reference" (list ($own.repository | default .Values.image.repository) ($own.tag | default .Values.image.tag | default .Chart.AppVersion) $digest) }}
{{- end }}

{{- define "gpu-dev.kubeVersion" -}}
{{ .Values.kubeVersion | default .Capabilities.KubeVersion.Version }}
{{- end }}

{{/* Kubernetes names none of its own pods' fields before 1.28 to select what a webhook is asked about. */}}
{{- define "gpu-dev.selectsByField" -}}
{{- if semverCompare ">=1.28.0-0" (include "gpu-dev.kubeVersion" .) }}yes{{ end }}
{{- end }}

{{- define "gpu-dev.hasPolicies" -}}
{{- if and .Values.policy.enabled (semverCompare ">=1.30.0-0" (include "gpu-dev.kubeVersion" .)) }}yes{{ end }}
{{- end }}

{{/* What older values lack: `helm upgrade --reuse-values` brings none of what is new in values.yaml. Maps that are not there, and in
those that are numbers, switches, lists and empty maps, are as files/defaults.yaml has them. A text that is not there is empty, and
a map of the user's own keys stays away, as null has it. */}}
{{- define "gpu-dev.defaults" -}}
{{- range $path, $defaults := .Files.Get "files/defaults.yaml" | fromYaml }}
{{- $map := dict "values" $.Values }}
{{- range $name := splitList "." $path }}
{{- if not (kindIs "map" (get $map $name)) }}{{ $_ := set $map $name $defaults }}{{ end }}
{{- $map = get $map $name }}
{{- end }}
{{- range $name, $default := $defaults }}
{{- $left := or (kindIs "string" $default) (and (kindIs "map" $default) (not (empty $default))) }}
{{- if not (or $left (hasKey $map $name)) }}{{ $_ := set $map $name $default }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
