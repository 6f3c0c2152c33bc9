{{- define "gpu-scheduler.alerts" -}}
{{- $here := printf `{namespace="%s"}` .Release.Namespace -}}
- alert: GpuSchedulerNobodyBinds
  expr: sum(gpu_dev_scheduler_leading{{ $here }}) < 1 or absent(gpu_dev_scheduler_leading{{ $here }})
  for: 2m
  labels: {severity: critical}
  annotations:
    summary: No replica of the scheduler holds the lease.
    description: Pods with a gpu-scheduling-map stay Pending meanwhile. The scheduler's log says why it can't have it; without a replica that is up and measured there is none to hold it.
- alert: GpuSchedulerLoopFails
  expr: max by (pod, loop) (gpu_dev_loop_failing_seconds{{ $here }}) > 300
  for: 1m
  labels: {severity: warning}
  annotations:
    summary: {{ `"The loop {{ $labels.loop }} of {{ $labels.pod }} has failed for {{ $value | humanizeDuration }}."` }}
    description: It goes on trying. /ready of the process and its log say with which error.
{{- if .Values.webhook.enabled }}
{{ include "gpu-dev.webhookCertificateAlert" . }}
{{- end }}
{{- end }}
