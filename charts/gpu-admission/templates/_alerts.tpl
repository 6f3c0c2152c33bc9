{{- define "gpu-admission.alerts" -}}
{{- $here := printf `{namespace="%s"}` (include "gpu-dev.namespace" .) -}}
- alert: GpuQuotaInvalid
  expr: max(gpu_dev_admission_quotas_invalid{{ $here }}) > 0
  for: 1m
  labels: {severity: critical}
  annotations:
    summary: The ConfigMap gpuquota can't be read as quotas.
    description: The last quotas that could be read go on to count. /health of the extender and an Event on the ConfigMap say what is wrong in it.
- alert: GpuAdmissionProblem
  expr: max by (pod) (gpu_dev_admission_problems{{ $here }}) > 0
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: {{ `"The extender in {{ $labels.pod }} has a problem."` }}
    description: Its /health says which; it goes on answering.
- alert: GpuAdmissionNotReady
  expr: max(gpu_dev_admission_synced{{ $here }}) < 1 or absent(gpu_dev_admission_synced{{ $here }})
  for: 5m
  labels: {severity: critical}
  annotations:
    summary: No extender has read the cluster.
    description: Pods with GPUs wait meanwhile. Its /ready says what is lacking, where one is up.
{{- if .Values.tls.enabled }}
{{ include "gpu-dev.certificateAlert" (list . "GpuAdmissionCertificateEnds" "gpu_dev_admission_certificate_ends_seconds" .Values.tls.validDays (printf "Delete the Secret %s and upgrade the release, or put a new pair into it where it is yours; then schedulers ask on." (include "gpu-admission.tlsSecret" .))) }}
{{- end }}
{{- end }}
