{{/* Names and labels. What has a component takes (list . "api-service"). */}}

{{- define "gpu-dev-server.cp" -}}{{ .Values.namespaces.controlplane }}{{- end }}
{{- define "gpu-dev-server.wl" -}}{{ .Values.namespaces.workloads }}{{- end }}
{{- define "gpu-dev-server.prefix" -}}{{ .Values.global.prefix }}{{- end }}

{{- define "gpu-dev-server.selector" -}}
{{- $root := index . 0 -}}
app: {{ index . 1 }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- end }}

{{- define "gpu-dev-server.labels" -}}
{{- $root := index . 0 -}}
{{ include "gpu-dev-server.selector" . }}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gpu-dev-server
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{/* Of pods: nothing that changes with each version of the chart, or every upgrade would have the database start anew. */}}
{{- define "gpu-dev-server.podLabels" -}}
{{ include "gpu-dev-server.selector" . }}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/part-of: gpu-dev-server
{{- end }}

{{/* An image of ours: (list . .Values.apiService.image) */}}
{{- define "gpu-dev-server.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 }}
{{- $repository := $image.repository }}
{{- $first := splitList "/" $repository | first }}
{{- if and $root.Values.global.imageRegistry (not (and (contains "/" $repository) (regexMatch "[.:]|^localhost$" $first))) }}
{{- $repository = printf "%s/%s" (trimSuffix "/" $root.Values.global.imageRegistry) $repository }}
{{- end }}
{{- include "gpu-dev.reference" (list $repository ($image.tag | default $root.Values.image.tag | default $root.Chart.AppVersion) $image.digest) }}
{{- end }}

{{- define "gpu-dev-server.postgresImage" -}}
{{ include "gpu-dev.reference" (list .Values.postgres.image.repository .Values.postgres.image.tag .Values.postgres.image.digest) }}
{{- end }}

{{/* Which database: embedded | cloudNativePG | external. Two of them, or none, is a mistake to be told of. */}}
{{- define "gpu-dev-server.database" -}}
{{- $external := or .Values.externalDatabase.url .Values.externalDatabase.existingSecret }}
{{- $chosen := list }}
{{- if .Values.postgres.enabled }}{{ $chosen = append $chosen "embedded" }}{{ end }}
{{- if .Values.cloudNativePG.enabled }}{{ $chosen = append $chosen "cloudNativePG" }}{{ end }}
{{- if $external }}{{ $chosen = append $chosen "external" }}{{ end }}
{{- if ne (len $chosen) 1 }}
{{- fail (printf "There has to be one database, and %d are chosen: set one of postgres.enabled, cloudNativePG.enabled, externalDatabase.url or externalDatabase.existingSecret, and postgres.enabled=false for the others." (len $chosen)) }}
{{- end }}
{{- first $chosen }}
{{- end }}

{{- define "gpu-dev-server.databaseSecret" -}}
{{- $kind := include "gpu-dev-server.database" . }}
{{- if eq $kind "embedded" }}{{ .Values.postgres.auth.existingSecret | default (printf "%s-postgres" .Values.global.prefix) }}
{{- else if eq $kind "cloudNativePG" }}{{ .Values.cloudNativePG.existingSecret | default (printf "%s-app" (include "gpu-dev-server.postgresCluster" .)) }}
{{- else }}{{ .Values.externalDatabase.existingSecret | default (printf "%s-external-database" .Values.global.prefix) }}
{{- end }}
{{- end }}

{{/* The Secret of the role that owns the database, where that is the built-in pair's or CloudNativePG's; empty: the application's
     own role does. */}}
{{- define "gpu-dev-server.ownerSecret" -}}
{{- $auth := .Values.postgres.auth }}
{{- $kind := include "gpu-dev-server.database" . }}
{{- if and $auth.ownerUsername (ne $auth.ownerUsername $auth.username) }}
{{- if eq $kind "embedded" }}{{ $auth.existingOwnerSecret | default (printf "%s-postgres-owner" .Values.global.prefix) }}
{{- else if eq $kind "cloudNativePG" }}{{ .Values.cloudNativePG.existingOwnerSecret }}
{{- end }}
{{- end }}
{{- end }}

{{/* CloudNativePG's Cluster: yours, or the chart's. */}}
{{- define "gpu-dev-server.postgresCluster" -}}
{{- $cluster := .Values.cloudNativePG }}
{{- if and $cluster.existingOwnerSecret (not $cluster.existingSecret) }}
{{- fail "cloudNativePG.existingOwnerSecret is set and cloudNativePG.existingSecret is not: with an owner of its own the database needs the Secret of the application's role as well." }}
{{- end }}
{{- $cluster.existingCluster | default (printf "%s-postgres" .Values.global.prefix) }}
{{- end }}

{{/* The Secret whose `ca.crt` signed the database's certificate; empty: the programs are told of none. */}}
{{- define "gpu-dev-server.databaseCa" -}}
{{- if eq (include "gpu-dev-server.database" .) "cloudNativePG" }}{{ .Values.cloudNativePG.caSecret | default (printf "%s-ca" (include "gpu-dev-server.postgresCluster" .)) }}
{{- else }}{{ include "gpu-dev-server.postgresTls" . }}
{{- end }}
{{- end }}

{{/* The Secret with the built-in pair's certificates: ca.crt, tls.crt, tls.key; empty: its connections are not encrypted. */}}
{{- define "gpu-dev-server.postgresTls" -}}
{{- if and .Values.postgres.tls.enabled (eq (include "gpu-dev-server.database" .) "embedded") }}
{{- .Values.postgres.tls.existingSecret | default (printf "%s-postgres-tls" .Values.global.prefix) }}
{{- end }}
{{- end }}

{{/* The host of a replica that the chart itself knows of; empty: there is none. */}}
{{- define "gpu-dev-server.replicaHost" -}}
{{- $kind := include "gpu-dev-server.database" . }}
{{- if and (eq $kind "embedded") .Values.postgres.replica.enabled }}postgres-replica
{{- else if and (eq $kind "cloudNativePG") (gt (int .Values.cloudNativePG.instances) 1) }}{{ include "gpu-dev-server.postgresCluster" . }}-ro
{{- end }}
{{- end }}

{{/* The key of an external replica's URL in the database's Secret; empty: there is none. */}}
{{- define "gpu-dev-server.replicaKey" -}}
{{- $external := .Values.externalDatabase }}
{{- if and $external.replicaUrl $external.existingSecret }}
{{- fail "externalDatabase.replicaUrl and externalDatabase.existingSecret are both set: put the replica's URL into that Secret, too, and its key into externalDatabase.existingSecretReplicaKey." }}
{{- end }}
{{- if and $external.existingSecretReplicaKey (not $external.existingSecret) }}
{{- fail "externalDatabase.existingSecretReplicaKey is a key of externalDatabase.existingSecret, which is empty: set externalDatabase.replicaUrl instead." }}
{{- end }}
{{- if eq (include "gpu-dev-server.database" .) "external" }}
{{- if $external.replicaUrl }}gpu_dev_database_replica_url{{ else }}{{ $external.existingSecretReplicaKey }}{{ end }}
{{- end }}
{{- end }}

{{- define "gpu-dev-server.databaseHost" -}}
{{- if eq (include "gpu-dev-server.database" .) "embedded" }}postgres-primary{{ else }}{{ include "gpu-dev-server.postgresCluster" . }}-rw{{ end }}
{{- end }}

{{- define "gpu-dev-server.adminSecret" -}}
{{ .Values.adminToken.existingSecret | default (printf "%s-admin-token" .Values.global.prefix) }}
{{- end }}

{{/* Whether an object may be ours: it is not there, or this release made it. (list . "v1" "Namespace" "" name) */}}
{{- define "gpu-dev-server.ours" -}}
{{- $root := index . 0 }}
{{- $found := include "gpu-dev-server.found" (rest .) | default "{}" | fromJson }}
{{- $by := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $found }}
{{- if or (not $found) (eq $by $root.Release.Name) }}yes{{ end }}
{{- end }}
