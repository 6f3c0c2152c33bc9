{{/* What containers are told by their environment. */}}

{{/* The scheduler. */}}
{{- define "gpu-scheduler.env" -}}
- {name: GPU_DEV_SCHEDULER__NAME, value: {{ .Values.schedulerName | quote }}}
- {name: GPU_DEV_SCHEDULER__OVERLAP, value: {{ .Values.scheduler.overlap | quote }}}
- {name: GPU_DEV_SCHEDULER__NODE_LABEL, value: {{ .Values.scheduler.nodeLabel | quote }}}
- {name: GPU_DEV_SCHEDULER__ENFORCED_LABEL, value: {{ .Values.scheduler.enforcedLabel | quote }}}
- {name: GPU_DEV_SCHEDULER__LEASE_NAME, value: {{ include "gpu-dev.fullname" . | quote }}}
- {name: GPU_DEV_SCHEDULER__LEASE_NAMESPACE, value: {{ .Release.Namespace | quote }}}
- {name: GPU_DEV_GPU__RESOURCE_NAMES, value: {{ join "," .Values.gpuResources | quote }}}
- {name: GPU_DEV_KUBERNETES__NAMESPACE, value: {{ .Values.scheduler.jobsNamespace | quote }}}
- {name: GPU_DEV_LOG_LEVEL, value: {{ .Values.scheduler.logLevel | quote }}}
{{- if .Values.scheduler.databaseSecret }}
- {name: GPU_DEV_SECRETS_DIR, value: /secrets/database}
{{- end }}
{{- end }}

{{/* The webhook. */}}
{{- define "gpu-scheduler.webhookEnv" -}}
- {name: GPU_DEV_WEBHOOK__SCHEDULER_NAME, value: {{ .Values.schedulerName | quote }}}
- {name: GPU_DEV_WEBHOOK__OVERRIDE_DEVICES, value: {{ .Values.webhook.overrideDevices | quote }}}
- {name: GPU_DEV_GPU__RESOURCE_NAMES, value: {{ join "," .Values.gpuResources | quote }}}
- {name: GPU_DEV_LOG_LEVEL, value: {{ .Values.webhook.logLevel | quote }}}
{{- end }}

{{/* The check service. */}}
{{- define "gpu-scheduler.checkEnv" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end }}
