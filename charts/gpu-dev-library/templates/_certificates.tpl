{{/* A webhook's certificates: made here and renewed by a job, or by cert-manager. They take `webhook` of the values. */}}

{{/* The Secret's data: as they are in the cluster, else made now. One answer for all templates of one rendering. */}}
{{- define "gpu-dev.certificates" -}}
{{- if not .Values.keptCertificates }}
{{- $found := lookup "v1" "Secret" (include "gpu-dev.namespace" .) (include "gpu-dev.secret" .) }}
{{- $data := dict }}
{{- if $found }}
{{- $data = $found.data }}
{{- else }}
{{- $service := include "gpu-dev.webhook" . }}
{{- $short := printf "%s.%s" $service (include "gpu-dev.namespace" .) }}
{{- $names := list $service $short (printf "%s.svc" $short) (printf "%s.svc.cluster.local" $short) }}
{{- $days := int .Values.webhook.certificates.validDays }}
{{- $ca := genCAWithKey (printf "%s authority" $service) $days (genPrivateKey "ecdsa") }}
{{- $pair := genSignedCertWithKey (printf "%s.svc" $short) nil $names $days $ca (genPrivateKey "ecdsa") }}
{{- $data = dict "ca.crt" ($ca.Cert | b64enc) "tls.crt" ($pair.Cert | b64enc) "tls.key" ($pair.Key | b64enc) }}
{{- end }}
{{- $_ := set .Values "keptCertificates" $data }}
{{- end }}
{{- end }}

{{- define "gpu-dev.certificatesSecret" -}}
{{- include "gpu-dev.certificates" . }}
# Made at the first installation, kept by upgrades, renewed by the CronJob beside it.
apiVersion: v1
kind: Secret
metadata:
  name: {{ include "gpu-dev.secret" . }}
  namespace: {{ include "gpu-dev.namespace" . }}
  labels: {{- include "gpu-dev.labels" . | nindent 4 }}
  annotations:
    gpu-dev/certificates: kept
    # Whoever brings certificates of their own later, or installs anew, must not lose the ones that are served.
    helm.sh/resource-policy: keep
type: kubernetes.io/tls
data: {{- toYaml .Values.keptCertificates | nindent 2 }}
{{- end }}

{{- define "gpu-dev.certificatesRenewal" -}}
{{- $name := printf "%s-certificates" (include "gpu-dev.fullname" .) }}
# Renews the webhook's certificate before it ends: first trusted, at the next look used.
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ $name }}
  namespace: {{ include "gpu-dev.namespace" . }}
  labels: {{- include "gpu-dev.labels" . | nindent 4 }}
spec:
  schedule: {{ .Values.webhook.certificates.schedule | quote }}
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 3
      activeDeadlineSeconds: 600
      template:
        metadata:
          labels:
            app.kubernetes.io/name: {{ $name }}
            app.kubernetes.io/instance: {{ .Release.Name }}
            app.kubernetes.io/part-of: gpu-dev-server
        spec:
          restartPolicy: Never
          serviceAccountName: {{ $name }}
          {{- with .Values.imagePullSecrets }}
          imagePullSecrets: {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext: {{- include "gpu-dev.podSecurity" . | nindent 12 }}
          containers:
            - name: certificates
              image: {{ include "gpu-dev.webhookImage" . | quote }}
              imagePullPolicy: {{ .Values.image.pullPolicy }}
              command:
                - python
                - -m
                - admission_webhook
                - certs
                - --service={{ include "gpu-dev.webhook" . }}
                - --namespace={{ include "gpu-dev.namespace" . }}
                - --secret={{ include "gpu-dev.secret" . }}
                - --configuration={{ include "gpu-dev.webhook" . }}
                - --valid-days={{ .Values.webhook.certificates.validDays }}
              {{- include "gpu-dev.env" (list "" .Values.webhook.certificates.extraEnv "webhook.certificates.extraEnv") | nindent 14 }}
              resources:
                requests: {cpu: 50m, memory: 96Mi}
                limits: {memory: 256Mi}
              securityContext: {{- include "gpu-dev.containerSecurity" . | nindent 16 }}
          {{- include "gpu-dev.placement" (list .Values (printf "app.kubernetes.io/name: %s\napp.kubernetes.io/instance: %s" $name .Release.Name) 1) | nindent 10 }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ include "gpu-dev.namespace" . }}
  labels: {{- include "gpu-dev.labels" . | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ include "gpu-dev.namespace" . }}
  labels: {{- include "gpu-dev.labels" . | nindent 4 }}
rules:
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [{{ include "gpu-dev.secret" . }}]
    verbs: [get, update]
  # One that somebody has deleted is made anew. A name can't be told from another before an object is there, so this is
  # for any Secret of this namespace; read and change it can only its own.
  - apiGroups: [""]
    resources: [secrets]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ include "gpu-dev.namespace" . }}
  labels: {{- include "gpu-dev.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - {kind: ServiceAccount, name: {{ $name }}, namespace: {{ include "gpu-dev.namespace" . }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels: {{- include "gpu-dev.labels" . | nindent 4 }}
rules:
  - apiGroups: [admissionregistration.k8s.io]
    resources: [mutatingwebhookconfigurations]
    resourceNames: [{{ include "gpu-dev.webhook" . }}]
    verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels: {{- include "gpu-dev.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - {kind: ServiceAccount, name: {{ $name }}, namespace: {{ include "gpu-dev.namespace" . }}}
{{- end }}

{{- define "gpu-dev.certManager" -}}
{{- $webhook := include "gpu-dev.webhook" . }}
{{- if not .Values.webhook.certManager.issuerRef }}
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: {{ $webhook }}
  namespace: {{ include "gpu-dev.namespace" . }}
  labels: {{- include "gpu-dev.labels" . | nindent 4 }}
spec:
  selfSigned: {}
---
{{- end }}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $webhook }}
  namespace: {{ include "gpu-dev.namespace" . }}
  labels: {{- include "gpu-dev.labels" . | nindent 4 }}
spec:
  secretName: {{ include "gpu-dev.secret" . }}
  duration: {{ mul 24 (int .Values.webhook.certificates.validDays) }}h
  dnsNames:
    - {{ $webhook }}
    - {{ $webhook }}.{{ include "gpu-dev.namespace" . }}
    - {{ $webhook }}.{{ include "gpu-dev.namespace" . }}.svc
    - {{ $webhook }}.{{ include "gpu-dev.namespace" . }}.svc.cluster.local
  issuerRef:
    {{- if .Values.webhook.certManager.issuerRef }}
    {{- toYaml .Values.webhook.certManager.issuerRef | nindent 4 }}
    {{- else }}
    name: {{ $webhook }}
    kind: Issuer
    {{- end }}
{{- end }}
