{{/* The port of the API's metrics, where its settings give them one of their own. */}}
{{- define "gpu-dev-server.metricsPort" -}}
{{- with get .Values.apiService.settings "GPU_DEV_METRICS_LISTEN" }}{{ splitList ":" . | last }}{{ end }}
{{- end }}

{{/* The name below which apps have their addresses; empty: the values say none. */}}
{{- define "gpu-dev-server.appsHost" -}}{{ trimPrefix "*." .Values.apiService.apps.host }}{{- end }}

{{/* The API's address for programs in jobs; empty: settings say another, or there is no API. */}}
{{- define "gpu-dev-server.jobServer" -}}
{{- if and .Values.apiService.enabled (not (include "gpu-dev-server.namedJobServer" .)) -}}
http://api-service.{{ include "gpu-dev-server.cp" . }}.svc:{{ int .Values.apiService.service.port }}
{{- end }}
{{- end }}

{{/* The address that the settings of either name. */}}
{{- define "gpu-dev-server.namedJobServer" -}}
{{- coalesce (get .Values.reservationProcessor.settings "GPU_DEV_JOB_SERVER") (get .Values.apiService.settings "GPU_DEV_JOB_SERVER") | default "" }}
{{- end }}

{{/* The address, the same for both where one alone names it: (list . settings). */}}
{{- define "gpu-dev-server.jobServerEnv" -}}
{{- $name := "GPU_DEV_JOB_SERVER" }}
{{- if not (hasKey (index . 1) $name) }}
{{- with index . 0 }}
{{- with include "gpu-dev-server.namedJobServer" . | default (include "gpu-dev-server.jobServer" .) }}
- {name: {{ $name }}, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the API is told by its environment. */}}
{{- define "gpu-dev-server.apiEnv" -}}
{{- range .Values.apiService.extraEnv }}
{{- if eq (upper .name) "GPU_DEV_METRICS_LISTEN" }}
{{- fail "apiService.extraEnv names GPU_DEV_METRICS_LISTEN. Set it in apiService.settings: the chart opens the port that it reads there." }}
{{- end }}
{{- end }}
{{ include "gpu-dev-server.env" (list . .Values.apiService.settings) }}
{{- include "gpu-dev-server.replicaEnv" . }}
- {name: GPU_DEV_LISTEN, value: "0.0.0.0:8080"}
{{- include "gpu-dev-server.signInEnv" . }}
{{- if not (hasKey .Values.apiService.settings "GPU_DEV_WEB__PUBLIC_URL") }}
{{- with include "gpu-dev-server.address" . }}
- {name: GPU_DEV_WEB__PUBLIC_URL, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- if not (hasKey .Values.apiService.settings "GPU_DEV_APPS_HOST") }}
{{- with include "gpu-dev-server.appsHost" . }}
- {name: GPU_DEV_APPS_HOST, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- include "gpu-dev-server.jobServerEnv" (list . .Values.apiService.settings) }}
{{- include "gpu-dev-server.filesEnv" (list . .Values.apiService.settings) }}
{{- if .Values.apiService.policy }}
- {name: GPU_DEV_POLICY_FILE, value: /api-configuration/policy.toml}
{{- end }}
{{- end }}
