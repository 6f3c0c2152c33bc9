{{/* What containers are told by their environment. */}}

{{/* The extender. */}}
{{- define "gpu-admission.env" -}}
- {name: LOG_LEVEL, value: {{ .Values.extender.verbosity | quote }}}
- {name: GPU_DEV_ADMISSION__QUOTA_NAMESPACE, value: {{ .Values.quotaNamespace | quote }}}
- {name: GPU_DEV_ADMISSION__SHARE_RESOURCE, value: {{ .Values.extender.shareResource | quote }}}
- {name: GPU_DEV_ADMISSION__MEMORY_RESOURCE, value: {{ .Values.extender.memoryResource | quote }}}
- {name: GPU_DEV_ADMISSION__LEASE_NAMESPACE, value: {{ include "gpu-dev.namespace" . | quote }}}
- {name: GPU_DEV_ADMISSION__LEASE_NAME, value: {{ include "gpu-dev.fullname" . | quote }}}
- {name: GPU_DEV_GPU__RESOURCE_NAMES, value: {{ join "," .Values.extender.gpuResources | quote }}}
{{- with .Values.extender.gpuTypes }}
- {name: GPU_DEV_GPU__TYPES, value: {{ toJson . | quote }}}
{{- end }}
{{- if .Values.monitoring.podMonitor.enabled }}
- {name: GPU_DEV_ADMISSION__METRICS_ADDRESS, value: {{ printf "0.0.0.0:%d" (int .Values.extender.metricsPort) | quote }}}
{{- end }}
{{- if .Values.extender.databaseSecret }}
- {name: GPU_DEV_SECRETS_DIR, value: /secrets/database}
{{- end }}
{{- end }}
