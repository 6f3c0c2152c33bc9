{{- define "gpu-booking.alerts" -}}
{{- $here := printf `namespace="%s"` (include "gpu-dev.namespace" .) -}}
{{ include "gpu-dev.webhookCertificateAlert" . }}
- alert: GpuBookingSilent
  expr: sum(rate(gpu_dev_webhook_questions_total{ {{- $here }},outcome!="answered"}[5m])) > 0
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: {{ printf "%s gives no answer, or refuses to." .Values.apiUrl | quote }}
    description: {{ printf "Meanwhile `silence: %s` says what becomes of pods. The webhook's log says what it was answered." .Values.silence | quote }}
- alert: GpuBookingOwnersUnusable
  expr: min(gpu_dev_webhook_owners_file_usable{ {{- $here -}} }) < 1
  for: 5m
  labels: {severity: warning}
  annotations:
    summary: The file that says whose pods are whose can't be read.
    description: {{ printf "The one before counts. Correct the ConfigMap %s; the webhook's log says what is wrong in it." (include "gpu-booking.owners" .) | quote }}
{{- end }}
