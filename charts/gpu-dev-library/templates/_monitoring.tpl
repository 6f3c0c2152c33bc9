{{/* What the Prometheus operator takes of a chart. */}}

{{/* Where all pods of the chart are measured: (list . endpoints), these as YAML. */}}
{{- define "gpu-dev.podMonitor" -}}
{{- $root := index . 0 }}
{{- with $root.Values.monitoring.podMonitor }}
{{- if .enabled }}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ include "gpu-dev.fullname" $root }}
  namespace: {{ include "gpu-dev.namespace" $root }}
  labels:
    {{- include "gpu-dev.labels" $root | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels: {{- include "gpu-dev.selector" $root | nindent 6 }}
  podMetricsEndpoints:
    {{- range index $ 1 | fromYamlArray }}
    - {{- toYaml (merge . (dict "path" "/metrics" "interval" $root.Values.monitoring.podMonitor.interval)) | nindent 6 }}
    {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The webhook's port: its certificate is for its Service, and who signed it is in the Secret, unless that is the user's. */}}
{{- define "gpu-dev.webhookEndpoint" -}}
- port: webhook
  scheme: https
  tlsConfig:
    {{- if .Values.webhook.caBundle }}
    insecureSkipVerify: true
    {{- else }}
    serverName: {{ include "gpu-dev.webhook" . }}.{{ include "gpu-dev.namespace" . }}.svc
    ca: {secret: {name: {{ include "gpu-dev.secret" . }}, key: ca.crt}}
    {{- end }}
{{- end }}

{{/* (list . rules), these as YAML */}}
{{- define "gpu-dev.prometheusRule" -}}
{{- $root := index . 0 }}
{{- with $root.Values.monitoring.prometheusRule }}
{{- if .enabled }}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ include "gpu-dev.fullname" $root }}
  namespace: {{ include "gpu-dev.namespace" $root }}
  labels:
    {{- include "gpu-dev.labels" $root | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  groups:
    - name: {{ include "gpu-dev.fullname" $root }}
      rules: {{- index $ 1 | nindent 8 }}
{{- end }}
{{- end }}
{{- end }}

{{/* A certificate that should have been renewed: (list . alert metric validDays next), next being what to do. */}}
{{- define "gpu-dev.certificateAlert" -}}
{{- $root := index . 0 }}{{ $days := min 14 (div (int (index . 3)) 4) }}
- alert: {{ index . 1 }}
  expr: min({{ index . 2 }}{namespace="{{ include "gpu-dev.namespace" $root }}"} > 0) - time() < {{ mul $days 86400 }}
  for: 15m
  labels: {severity: critical}
  annotations:
    summary: {{ printf "The certificate that %s shows ends in less than %d days." (include "gpu-dev.fullname" $root) $days | quote }}
    description: {{ index . 4 | quote }}
{{- end }}

{{- define "gpu-dev.webhookCertificateAlert" -}}
{{- $next := printf "The job %s-certificates renews it; its pods' logs say why it did not. After its end the API server asks the webhook no more." (include "gpu-dev.fullname" .) }}
{{- if .Values.webhook.caBundle }}{{ $next = printf "Put a new one into the Secret %s: the webhook takes it over by itself." (include "gpu-dev.secret" .) }}{{ end }}
{{- if .Values.webhook.certManager.enabled }}{{ $next = printf "cert-manager renews it: kubectl describe certificate -n %s %s" (include "gpu-dev.namespace" .) (include "gpu-dev.webhook" .) }}{{ end }}
{{- include "gpu-dev.certificateAlert" (list . "GpuDevWebhookCertificateEnds" "gpu_dev_webhook_certificate_ends_seconds" .Values.webhook.certificates.validDays $next) }}
{{- end }}
