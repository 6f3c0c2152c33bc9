{{/* Whether the certificate is ours to make and renew. */}}
{{- define "gpu-booking.keepsCertificates" -}}
{{- if and (not .Values.webhook.caBundle) (not .Values.webhook.certManager.enabled) }}yes{{ end }}
{{- end }}

{{- define "gpu-booking.tokenSecret" -}}
{{ .Values.existingSecret | default (printf "%s-token" (include "gpu-dev.webhook" .)) }}
{{- end }}

{{- define "gpu-booking.owners" -}}
{{ .Values.existingOwnersConfigMap | default (printf "%s-owners" (include "gpu-dev.webhook" .)) }}
{{- end }}

{{/* Namespaces with the label, but for Kubernetes' own and ours: who decides can't be decided about. */}}
{{- define "gpu-booking.namespaceSelector" -}}
{{- $label := splitList "=" .Values.webhook.namespaceLabel -}}
matchLabels: { {{- first $label }}: {{ last $label | quote -}} }
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: {{ list "kube-system" (include "gpu-dev.namespace" .) | uniq | toJson }}
{{- end }}

{{/* What stands on pods and may not change, as a list in CEL. */}}
{{- define "gpu-booking.marks" -}}
['gpu-dev/owner', 'gpu-dev/booking', 'gpu-dev/terminate-at', 'gpu-dev/preemptible', 'gpu-dev/map-devices']
{{- end }}

{{/* What can't be left out says so in a sentence. */}}
{{- define "gpu-booking.check" -}}
{{- if not .Values.apiUrl }}
{{- fail "apiUrl is empty: nobody could be asked who has booked. Set it to the whole address, such as --set apiUrl=https://gpu-dev.example.org/v1/schedulability" }}
{{- end }}
{{- if and (eq .Values.apiShape "auto") (not (regexMatch "/(v1/schedulability|gpu-schedulability)/*$" .Values.apiUrl)) }}
{{- fail (printf "apiUrl %s ends neither in /v1/schedulability nor in /gpu-schedulability/. Correct it, or say with apiShape=own or apiShape=seed how it is asked" .Values.apiUrl) }}
{{- end }}
{{- if and .Values.apiToken .Values.existingSecret }}
{{- fail "apiToken and existingSecret are both set. Leave one of them out." }}
{{- end }}
{{- if not (or .Values.apiToken .Values.existingSecret) }}
{{- fail "the service wants to know who asks: set existingSecret to a Secret with the key token (or existingSecretKey), or set apiToken" }}
{{- end }}
{{- end }}
