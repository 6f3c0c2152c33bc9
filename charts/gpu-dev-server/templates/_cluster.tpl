{{/* What the cluster says. Nobody is asked by `helm template`, by a dry run of the client and by Argo CD. */}}

{{/* An object as JSON; empty: it is not there, or nobody is asked. (list "v1" "Secret" namespace name) */}}
{{- define "gpu-dev-server.found" -}}
{{- with lookup (index . 0) (index . 1) (index . 2) (index . 3) }}{{ toJson . }}{{ end }}
{{- end }}

{{/* Whether the cluster is asked: every one has this namespace. */}}
{{- define "gpu-dev-server.asked" -}}
{{- if include "gpu-dev-server.found" (list "v1" "Namespace" "" "default") }}yes{{ end }}
{{- end }}

{{/* A claim's storage class can't be changed: the one that it has in the cluster, else the values'. (list . kind name) */}}
{{- define "gpu-dev-server.storageClass" -}}
{{- $root := index . 0 }}{{ $kind := index . 1 }}
{{- $class := (include "gpu-dev-server.storage" $root | fromYaml).class }}
{{- with include "gpu-dev-server.found" (list (ternary "apps/v1" "v1" (eq $kind "StatefulSet")) $kind (include "gpu-dev-server.cp" $root) (index . 2)) }}
{{- $claim := fromJson . }}
{{- if eq $kind "StatefulSet" }}{{ $claim = first $claim.spec.volumeClaimTemplates }}{{ end }}
{{- $class = dig "spec" "storageClassName" "" $claim }}
{{- end }}
{{- with $class }}storageClassName: {{ . }}{{ end }}
{{- end }}
