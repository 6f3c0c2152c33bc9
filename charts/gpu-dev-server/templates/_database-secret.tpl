{{/* The database's Secret where it is the chart's own, and how pods learn that a password has changed. */}}

{{/* Its data, as YAML: as they are in the cluster, else made now. One answer for all templates of one rendering. */}}
{{- define "gpu-dev-server.databaseData" -}}
{{- if not .Values.keptDatabaseData }}
{{- $name := printf "%s-%s" .Values.global.prefix (ternary "postgres" "external-database" (eq (include "gpu-dev-server.database" .) "embedded")) }}
{{- $found := include "gpu-dev-server.found" (list "v1" "Secret" (include "gpu-dev-server.cp" .) $name) | default "{}" | fromJson | dig "data" (dict) }}
{{- $data := dict }}
{{- if eq (include "gpu-dev-server.database" .) "embedded" }}
{{- $password := get $found "password" | default (randAlphaNum 32 | b64enc) }}
{{- with .Values.postgres.auth.password }}{{ $password = b64enc . }}{{ end }}
{{- $replication := get $found "replication-password" | default (randAlphaNum 32 | b64enc) }}
{{- $data = dict "username" (b64enc .Values.postgres.auth.username) "password" $password "replication-password" $replication }}
{{- else }}
{{- $data = dict .Values.externalDatabase.existingSecretKey (b64enc .Values.externalDatabase.url) }}
{{- with .Values.externalDatabase.replicaUrl }}{{ $_ := set $data "gpu_dev_database_replica_url" (b64enc .) }}{{ end }}
{{- end }}
{{- if include "gpu-dev-server.asked" . }}
{{- $_ := set $data "checksum-key" (get $found "checksum-key" | default (randAlphaNum 43 | b64enc)) }}
{{- end }}
{{- $_ := set .Values "keptDatabaseData" $data }}
{{- end }}
{{- toYaml .Values.keptDatabaseData }}
{{- end }}

{{/* An annotation that changes with the passwords. A plain digest would let whoever reads pods try guesses: ours is made
with a key that stands in the Secret alone, and of a Secret of others it is the version. Empty where neither is known. */}}
{{- define "gpu-dev-server.databaseChecksum" -}}
{{- $own := or (and .Values.externalDatabase.url (not .Values.externalDatabase.existingSecret)) (and .Values.postgres.enabled (not .Values.postgres.auth.existingSecret)) }}
{{- if $own }}
{{- $data := include "gpu-dev-server.databaseData" . }}
{{- if contains "checksum-key:" $data }}
checksum/database: {{ sha256sum $data }}
{{- end }}
{{- else }}
{{- with include "gpu-dev-server.found" (list "v1" "Secret" (include "gpu-dev-server.cp" .) (include "gpu-dev-server.databaseSecret" .)) }}
gpu-dev/database-secret: {{ fromJson . | dig "metadata" "resourceVersion" "" | quote }}
{{- end }}
{{- end }}
{{- end }}
