{{- define "gpu-dev-server.postgresStandby" -}}
{{- if .Values.postgres.replica.enabled }}{{ ternary "postgres-primary" "postgres-replica" (eq .Values.postgres.primaryIs "postgres-replica") }}{{ end }}
{{- end }}

{{- define "gpu-dev-server.postgresOwner" -}}
{{- ternary .Values.postgres.auth.ownerUsername .Values.postgres.auth.username (ne "" (include "gpu-dev-server.ownerSecret" .)) }}
{{- end }}

{{- define "gpu-dev-server.postgresFiles" -}}
postgresql.conf: |
  # max_connections and what values.postgres.configuration says beside it
  {{- range $name, $value := .Values.postgres.configuration }}
  {{ $name }} = '{{ include "gpu-dev-server.said" $value | replace "'" "''" }}'
  {{- end }}
  # The chart's own.
  listen_addresses = '*'
  password_encryption = 'scram-sha-256'
  {{- if include "gpu-dev-server.postgresTls" . }}
  # start.sh says where the files are.
  ssl = on
  ssl_min_protocol_version = 'TLSv1.2'
  {{- else }}
  ssl = off
  {{- end }}
  wal_level = 'replica'
  max_wal_senders = 10
  max_replication_slots = 10
  max_slot_wal_keep_size = '{{ .Values.postgres.replication.keepWal }}'
  hot_standby = on
  hot_standby_feedback = on
  fsync = on
  full_page_writes = on
  # The processes ask for it as well: a commit is answered when it is on disk, here and on the standby that is named.
  synchronous_commit = on
  {{- if and .Values.postgres.replication.synchronous (include "gpu-dev-server.postgresStandby" .) }}
  synchronous_standby_names = 'FIRST 1 ("{{ include "gpu-dev-server.postgresStandby" . }}-0")'
  {{- else }}
  synchronous_standby_names = ''
  {{- end }}
  idle_in_transaction_session_timeout = '60s'
  autovacuum_naptime = '5s'
  autovacuum_vacuum_scale_factor = 0.05
  autovacuum_analyze_scale_factor = 0.05
  jit = off
  timezone = 'UTC'
  log_timezone = 'UTC'
  log_destination = 'stderr'
  logging_collector = off
  log_line_prefix = '%m [%p] %q%u@%d '
  log_checkpoints = off
  # Statements may carry what users sent.
  log_statement = 'none'
  log_min_error_statement = 'panic'
  log_parameter_max_length_on_error = 0
pg_hba.conf: |
  # The socket is in a folder that only this pod has.
  local all all trust
  {{- $host := ternary "hostssl" "host" (ne "" (include "gpu-dev-server.postgresTls" .)) }}
  {{ $host }} replication replicator all scram-sha-256
  {{ $host }} {{ .Values.postgres.auth.database }} {{ list (include "gpu-dev-server.postgresOwner" .) .Values.postgres.auth.username | uniq | join "," }} all scram-sha-256
passwords.sh: |
{{ .Files.Get "files/postgres-passwords.sh" | indent 2 }}
start.sh: |
{{ .Files.Get "files/postgres-start.sh" | indent 2 }}
prepare.sql: |
{{ .Files.Get "files/postgres-prepare.sql" | indent 2 }}
backup.sh: |
{{ .Files.Get "files/postgres-backup.sh" | indent 2 }}
restore.sh: |
{{ .Files.Get "files/postgres-restore.sh" | indent 2 }}
{{- end }}

{{/* Whether this release had a database: yes | anew (it had, and begins once more) | unknown. Read from the cluster, so it is no
     part of what the servers start anew for. Of claims that are gone nothing is left to be lost. */}}
{{- define "gpu-dev-server.postgresBegun" -}}
{{- $cp := include "gpu-dev-server.cp" . }}
{{- $kept := include "gpu-dev-server.found" (list "v1" "ConfigMap" $cp (printf "%s-postgres" .Values.global.prefix)) | default "{}" | fromJson }}
{{- $begun := eq "yes" (dig "data" "begun" "" $kept) }}
{{- $claims := false }}
{{- range $name := list "postgres-primary" "postgres-replica" }}
{{- $set := include "gpu-dev-server.found" (list "apps/v1" "StatefulSet" $cp $name) | default "{}" | fromJson }}
{{- if gt (int (dig "status" "readyReplicas" 0 $set)) 0 }}{{ $begun = true }}{{ end }}
{{- if include "gpu-dev-server.found" (list "v1" "PersistentVolumeClaim" $cp (printf "data-%s-0" $name)) }}{{ $claims = true }}{{ end }}
{{- end }}
{{- $begin := .Values.postgres.begin | default "auto" }}
{{- if ne $begin "auto" }}{{ ternary "anew" "yes" (eq $begin "anew") }}
{{- else }}{{ ternary "yes" "unknown" (and $begun (or $claims .Release.IsUpgrade)) }}
{{- end }}
{{- end }}

{{- define "gpu-dev-server.postgresSecurity" -}}
runAsNonRoot: true
runAsUser: {{ int64 .Values.postgres.runAsUser }}
runAsGroup: {{ int64 .Values.postgres.runAsUser }}
fsGroup: {{ int64 .Values.postgres.runAsUser }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* What one of the two servers is told: (list . "postgres-primary") */}}
{{- define "gpu-dev-server.postgresEnv" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}
{{- $postgres := $root.Values.postgres }}
{{- $leads := eq $postgres.primaryIs $name }}
- {name: PGDATA, value: /var/lib/postgresql/data/pgdata}
- {name: PGPORT, value: "5432"}
- {name: PG_ROLE, value: {{ ternary "primary" "standby" $leads }}}
# Where it all begins: only there an empty volume becomes an empty database.
- {name: PG_MAY_CREATE, value: {{ ternary "yes" "no" (and $leads (eq $name "postgres-primary")) | quote }}}
- {name: PG_NAME, value: {{ $name }}-0}
- {name: PG_PRIMARY_HOST, value: postgres-primary}
# Asked before an empty volume becomes an empty database, for so many seconds.
- {name: PG_STANDBY_HOST, value: {{ ternary "postgres-replica-unready" "" (ne "" (include "gpu-dev-server.postgresStandby" $root)) | quote }}}
- {name: PG_ASK_S, value: "30"}
- {name: PG_STANDBYS, value: {{ with include "gpu-dev-server.postgresStandby" $root }}{{ . }}-0{{ else }}""{{ end }}}
- {name: PG_USER, value: {{ $postgres.auth.username | quote }}}
- {name: PG_DATABASE, value: {{ $postgres.auth.database | quote }}}
# Whoever owns the database: PG_USER itself, or another role.
- {name: PG_OWNER, value: {{ include "gpu-dev-server.postgresOwner" $root | quote }}}
- {name: PG_CONFIG, value: /configuration}
- {name: PG_SECRETS, value: /secrets/postgres}
- {name: PG_RUN, value: /run/postgresql}
{{- include "gpu-dev-server.postgresSsl" $root }}
{{- end }}

{{/* Where one of the two servers goes, unless its values say otherwise: not beside the other, and to the cloud's zone. (list . values) */}}
{{- define "gpu-dev-server.postgresPlacing" -}}
{{- $root := index . 0 }}{{ $values := index . 1 }}
{{- $zone := $root.Values.cloudProvider.aws.primaryAvailabilityZone | default $root.Values.cloudProvider.gcp.zone }}
{{- $affinity := dict }}
{{- with $zone }}
{{- $in := dict "key" "topology.kubernetes.io/zone" "operator" "In" "values" (list .) }}
{{- $term := dict "weight" 50 "preference" (dict "matchExpressions" (list $in)) }}
{{- $affinity = dict "nodeAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list $term)) }}
{{- end }}
{{- $spread := list }}
{{- if $root.Values.postgres.replica.enabled }}
{{- $both := dict "matchLabels" (dict "gpu-dev/database" "postgres") }}
{{- $spread = list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" $both) }}
{{- end }}
{{- $chosen := dict "affinity" ($values.affinity | default $affinity) "topologySpreadConstraints" ($values.topologySpreadConstraints | default $spread) }}
{{- merge $chosen (pick $values "nodeSelector" "tolerations") | toYaml }}
{{- end }}

{{/* How the servers' own programs reach them. */}}
{{- define "gpu-dev-server.postgresSsl" -}}
{{- if include "gpu-dev-server.postgresTls" . }}
- {name: PGSSLMODE, value: verify-ca}
- {name: PGSSLROOTCERT, value: /secrets/postgres/ca.crt}
{{- else }}
- {name: PGSSLMODE, value: disable}
{{- end }}
{{- end }}

{{/* The volumes for passwords and certificates, and for what is made of them: (list . databaseSecret key …) */}}
{{- define "gpu-dev-server.postgresSecrets" -}}
{{- $root := first . }}{{ $keys := slice . 2 }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ index . 1 }}
          items:
            {{- range $keys }}
            - {key: {{ . }}, path: {{ . }}}
            {{- end }}
      {{- if has "replication-password" $keys }}
      {{- with include "gpu-dev-server.ownerSecret" $root }}
      - secret:
          name: {{ . }}
          items: [{key: password, path: owner-password}]
      {{- end }}
      {{- end }}
      {{- with include "gpu-dev-server.postgresTls" $root }}
      - secret:
          name: {{ . }}
          items:
            - {key: ca.crt, path: ca.crt}
            {{- if has "replication-password" $keys }}
            - {key: tls.crt, path: tls.crt}
            - {key: tls.key, path: tls.key}
            {{- end }}
      {{- end }}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- end }}

{{/* One of the two servers: (list . "postgres-primary" .Values.postgres.primary) */}}
{{- define "gpu-dev-server.postgresSet" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $values := index . 2 }}
{{- $postgres := $root.Values.postgres }}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name }}
  namespace: {{ include "gpu-dev-server.cp" $root }}
  labels: {{- include "gpu-dev-server.labels" (list $root $name) | nindent 4 }}
spec:
  replicas: 1
  serviceName: {{ $name }}
  selector:
    matchLabels: {{- include "gpu-dev-server.selector" (list $root $name) | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "gpu-dev-server.podLabels" (list $root $name) | nindent 8 }}
        gpu-dev/database: postgres
      annotations:
        checksum/configuration: {{ include "gpu-dev-server.postgresFiles" $root | sha256sum }}
        {{- include "gpu-dev-server.databaseChecksum" $root | nindent 8 }}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 120
      securityContext: {{- include "gpu-dev-server.postgresSecurity" $root | nindent 8 }}
      {{- include "gpu-dev-server.placing" (list $root $name (include "gpu-dev-server.postgresPlacing" (list $root $values) | fromYaml) 1) | nindent 6 }}
      containers:
        - name: postgres
          image: {{ include "gpu-dev-server.postgresImage" $root | quote }}
          imagePullPolicy: {{ $postgres.image.pullPolicy }}
          command: [sh, /configuration/start.sh]
          {{- include "gpu-dev.env" (list (include "gpu-dev-server.postgresEnv" (list $root $name)) $values.extraEnv (printf "postgres.%s.extraEnv" (trimPrefix "postgres-" $name))) | nindent 10 }}
          ports:
            - {name: postgres, containerPort: 5432}
          # Over TCP: while a server prepares itself it is not reached by the network.
          startupProbe:
            exec: {command: [sh, -c, 'pg_isready -q -h 127.0.0.1 -U "$PG_USER" -d "$PG_DATABASE"']}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: {{ mul 6 (int $postgres.startupMinutes) }}
          readinessProbe:
            exec: {command: [sh, -c, 'pg_isready -q -h 127.0.0.1 -U "$PG_USER" -d "$PG_DATABASE"']}
            periodSeconds: 5
            timeoutSeconds: 5
          # One that says that it is not ready yet lives.
          livenessProbe:
            exec: {command: [sh, -c, 'pg_isready -q -h 127.0.0.1 -U "$PG_USER" -d "$PG_DATABASE" -t 8; [ $? -lt 2 ]']}
            periodSeconds: 20
            timeoutSeconds: 15
            failureThreshold: 6
          resources: {{- toYaml $values.resources | nindent 12 }}
          securityContext: {{- include "gpu-dev.containerSecurity" $root | nindent 12 }}
          volumeMounts:
            - {name: data, mountPath: /var/lib/postgresql/data}
            - {name: configuration, mountPath: /configuration, readOnly: true}
            - {name: secrets, mountPath: /secrets/postgres, readOnly: true}
            - {name: run, mountPath: /run/postgresql}
            - {name: tmp, mountPath: /tmp}
            # Parallel queries.
            - {name: shm, mountPath: /dev/shm}
      volumes:
        - name: configuration
          configMap: {name: {{ $root.Values.global.prefix }}-postgres}
        {{- include "gpu-dev-server.postgresSecrets" (list $root (include "gpu-dev-server.databaseSecret" $root) "password" "replication-password") | nindent 8 }}
        - name: tmp
          emptyDir: {sizeLimit: 1Gi}
        - name: shm
          emptyDir: {medium: Memory, sizeLimit: 1Gi}
  volumeClaimTemplates:
    - metadata:
        name: data
        labels: {{- include "gpu-dev-server.selector" (list $root $name) | nindent 10 }}
      spec:
        accessModes: [ReadWriteOnce]
        {{- include "gpu-dev-server.storageClass" (list $root "StatefulSet" $name) | nindent 8 }}
        resources:
          requests: {storage: {{ $values.storageSize }}}
{{- end }}

{{- define "gpu-dev-server.backupEnv" -}}
{{- $root := index . 0 }}
- {name: PGHOST, value: {{ (index . 1) }}}
- {name: PGUSER, value: {{ ternary (include "gpu-dev-server.postgresOwner" $root) $root.Values.postgres.auth.username (eq (index . 2) "restore") | quote }}}
- {name: PG_USER, value: {{ $root.Values.postgres.auth.username | quote }}}
- {name: PGDATABASE, value: {{ $root.Values.postgres.auth.database | quote }}}
- {name: PG_CONFIG, value: /configuration}
- {name: PG_SECRETS, value: /secrets/postgres}
- {name: PG_RUN, value: /run/postgresql}
{{- include "gpu-dev-server.postgresSsl" $root }}
- {name: BACKUPS, value: /backups}
- {name: KEEP, value: {{ $root.Values.postgres.backup.keep | quote }}}
- {name: BACKUP_FILE, value: ""}
{{- end }}

{{/* A pod that works with backups: (list . name host). Whoever restores one is the owner. */}}
{{- define "gpu-dev-server.backupContainer" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $host := index . 2 }}
{{- $backup := $root.Values.postgres.backup }}
- name: {{ $name }}
  image: {{ include "gpu-dev-server.postgresImage" $root | quote }}
  imagePullPolicy: {{ $root.Values.postgres.image.pullPolicy }}
  command: [sh, /configuration/{{ $name }}.sh]
  {{- include "gpu-dev.env" (list (include "gpu-dev-server.backupEnv" (list $root $host $name)) $backup.extraEnv "postgres.backup.extraEnv") | nindent 2 }}
  resources: {{- toYaml $backup.resources | nindent 4 }}
  securityContext: {{- include "gpu-dev.containerSecurity" $root | nindent 4 }}
  volumeMounts:
    - {name: backups, mountPath: /backups}
    - {name: configuration, mountPath: /configuration, readOnly: true}
    - {name: secrets, mountPath: /secrets/postgres, readOnly: true}
    - {name: run, mountPath: /run/postgresql}
    - {name: tmp, mountPath: /tmp}
{{- end }}

{{/* (list . databaseSecret) */}}
{{- define "gpu-dev-server.backupVolumes" -}}
{{- $secret := index . 1 }}
{{- with index . 0 -}}
- name: backups
  persistentVolumeClaim: {claimName: postgres-backups}
- name: configuration
  configMap: {name: {{ .Values.global.prefix }}-postgres}
{{ include "gpu-dev-server.postgresSecrets" (list . $secret "password") }}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- end }}
{{- end }}
