{{/* Whether the certificate is ours to make and renew. */}}
{{- define "gpu-scheduler.keepsCertificates" -}}
{{- if and .Values.webhook.enabled (not .Values.webhook.caBundle) (not .Values.webhook.certManager.enabled) }}yes{{ end }}
{{- end }}
