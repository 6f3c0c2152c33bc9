{{/* What the sign-in file means for the chart. The API reads all of it; here it matters only which kinds of rules it has. */}}

{{- define "gpu-dev-server.signInFile" -}}
{{- .Values.apiService.signIn.file | default (include "gpu-dev-server.cloudSignIn" .) }}
{{- end }}

{{- define "gpu-dev-server.signInHas" -}}
{{- $kinds := index . 1 }}
{{- if regexMatch (printf `(?m)^\s*(\[\[\s*(%s)\s*\]\]|(%s)\s*=)` $kinds $kinds) (include "gpu-dev-server.signInFile" (index . 0)) }}yes{{ end }}
{{- end }}

{{/* The address that people know the API by, where the values say one. */}}
{{- define "gpu-dev-server.address" -}}
{{- $ingress := .Values.apiService.ingress }}{{ $route := .Values.apiService.httpRoute }}
{{- $host := ternary $ingress.host (first $route.hostnames | default "") $ingress.enabled }}
{{- if and (or $ingress.enabled $route.enabled) $host (not (hasPrefix "*" $host)) }}https://{{ $host }}{{ end }}
{{- end }}

{{/* The variables of signing in; what would not work is said before anything is installed. */}}
{{- define "gpu-dev-server.signInEnv" -}}
{{- $values := .Values.apiService }}
{{- if include "gpu-dev-server.signInFile" . }}
- {name: GPU_DEV_AUTH__FILE, value: /api-configuration/sign-in.toml}
{{- if and (include "gpu-dev-server.signInHas" (list . "kubernetes")) (not $values.signIn.kubernetes) }}
{{- fail "apiService.signIn.file lets people in by service accounts' tokens: set apiService.signIn.kubernetes=true, so that the API may ask Kubernetes whose they are." }}
{{- end }}
{{- if not (hasKey $values.settings "GPU_DEV_AUTH__SERVER_IDS") }}
{{- $ids := include "gpu-dev-server.serverIds" . }}
{{- if $ids }}
- {name: GPU_DEV_AUTH__SERVER_IDS, value: {{ $ids | quote }}}
{{- else if include "gpu-dev-server.signInHas" (list . "aws|kubernetes") }}
{{- fail "apiService.signIn.file lets people in by AWS or by service accounts' tokens, which are meant for one server: set apiService.settings.GPU_DEV_AUTH__SERVER_IDS to the addresses that people know this one by (https://gpus.example.org), or apiService.ingress.enabled and .host, or apiService.httpRoute.enabled and .hostnames." }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
