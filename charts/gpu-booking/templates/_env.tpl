{{/* What containers are told by their environment. */}}

{{/* The webhook. */}}
{{- define "gpu-booking.env" -}}
- {name: GPU_DEV_WEBHOOK__ENFORCE_BOOKINGS, value: "true"}
- {name: GPU_DEV_WEBHOOK__API_URL, value: {{ .Values.apiUrl | quote }}}
- {name: GPU_DEV_WEBHOOK__API_SHAPE, value: {{ .Values.apiShape | quote }}}
- {name: GPU_DEV_WEBHOOK__API_TOKEN_FILE, value: /secrets/token/token}
{{- if .Values.apiCaSecret }}
- {name: GPU_DEV_WEBHOOK__API_CA_FILE, value: /secrets/ca/ca.crt}
{{- end }}
- {name: GPU_DEV_WEBHOOK__OWNERS_FILE, value: /owners/owners.yaml}
- {name: GPU_DEV_WEBHOOK__UNBOOKED, value: {{ .Values.unbooked | quote }}}
- {name: GPU_DEV_WEBHOOK__SILENCE, value: {{ .Values.silence | quote }}}
- {name: GPU_DEV_WEBHOOK__PLACE, value: {{ .Values.place | quote }}}
- {name: GPU_DEV_WEBHOOK__FRESH_S, value: {{ .Values.freshSeconds | quote }}}
- {name: GPU_DEV_WEBHOOK__LAST_KNOWN_S, value: {{ .Values.lastKnownSeconds | quote }}}
- {name: GPU_DEV_WEBHOOK__ALLOW_CLAIMS, value: {{ .Values.allowClaims | quote }}}
- {name: GPU_DEV_WEBHOOK__ALLOW_SHARES, value: {{ .Values.allowShares | quote }}}
- {name: GPU_DEV_WEBHOOK__SHARE_RESOURCE, value: {{ .Values.shareResource | quote }}}
- {name: GPU_DEV_WEBHOOK__MARK_KEEPERS, value: {{ join "," .Values.markKeepers | quote }}}
- {name: GPU_DEV_WEBHOOK__SCHEDULER_NAME, value: {{ .Values.schedulerName | quote }}}
- {name: GPU_DEV_GPU__RESOURCE_NAMES, value: {{ join "," .Values.gpuResources | quote }}}
- {name: GPU_DEV_GPU__TYPE_LABELS, value: {{ join "," .Values.gpuTypeLabels | quote }}}
- {name: GPU_DEV_GPU__TYPES, value: {{ .Values.gpuTypes | toJson | quote }}}
- {name: GPU_DEV_LOG_LEVEL, value: {{ .Values.webhook.logLevel | quote }}}
{{- end }}
