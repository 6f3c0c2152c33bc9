{{/* What the cloud's values file says holds where it is not passed, too: `helm upgrade … -f my-values.yaml` alone must not
take away by what GPUs, addresses and volumes came. What the values say themselves goes before it. */}}

{{- define "gpu-dev-server.cloudFile" -}}
{{- if has .Values.cloudProvider.name (list "aws" "gcp") }}{{ .Files.Get (printf "values-%s.yaml" .Values.cloudProvider.name) }}{{ end }}
{{- end }}

{{/* A map of the values over the same of the cloud's file, as YAML: (list . "apiService" "ingress") */}}
{{- define "gpu-dev-server.withCloud" -}}
{{- $root := index . 0 }}
{{- $own := $root.Values }}{{ $cloud := include "gpu-dev-server.cloudFile" $root | default "{}" | fromYaml }}
{{- range rest . }}
{{- $own = get $own . }}{{ $cloud = get $cloud . | default dict }}
{{- end }}
{{- $merged := deepCopy $own }}
{{- range $name, $value := $cloud }}
{{- if not (hasKey $own $name) }}{{ $_ := set $merged $name $value }}{{ end }}
{{- end }}
{{- toYaml $merged }}
{{- end }}

{{/* The Ingress: of one with a class of its own the cloud's file has nothing to say. */}}
{{- define "gpu-dev-server.ingress" -}}
{{- $ingress := deepCopy .Values.apiService.ingress }}
{{- if not $ingress.className }}
{{- $cloud := include "gpu-dev-server.cloudFile" . | default "{}" | fromYaml }}
{{- $_ := set $ingress "className" (dig "apiService" "ingress" "className" "" $cloud) }}
{{- $_ := set $ingress "annotations" (include "gpu-dev-server.withCloud" (list . "apiService" "ingress" "annotations") | fromYaml) }}
{{- end }}
{{- toYaml $ingress }}
{{- end }}

{{/* gp3 is the chart's default and AWS's: on Google's cloud it was not chosen. */}}
{{- define "gpu-dev-server.storage" -}}
{{- $cloud := include "gpu-dev-server.cloudFile" . | default "{}" | fromYaml }}
{{- if and (eq .Values.cloudProvider.name "gcp") (eq .Values.storage.class "gp3") }}{{ toYaml $cloud.storage }}{{ else }}{{ toYaml .Values.storage }}{{ end }}
{{- end }}

{{/* Whose word counts where people sign in with the cloud's identities: AWS's account or Google's project. Empty: they
don't, or the values don't say. */}}
{{- define "gpu-dev-server.cloudPrincipal" -}}
{{- $values := .Values.apiService }}
{{- $enabled := $values.signIn.cloud.enabled }}
{{- if kindIs "invalid" $enabled }}{{ $enabled = include "gpu-dev-server.cloudFile" . | default "{}" | fromYaml | dig "apiService" "signIn" "cloud" "enabled" false }}{{ end }}
{{- if and $enabled (not $values.signIn.file) }}
{{- if eq .Values.cloudProvider.name "aws" }}
{{- $arn := get $values.serviceAccount.annotations "eks.amazonaws.com/role-arn" | default "" }}
{{- if regexMatch "^arn:aws:iam::[0-9]{12}:role/" $arn }}{{ index (splitList ":" $arn) 4 }}{{ end }}
{{- else if eq .Values.cloudProvider.name "gcp" }}
{{- $project := .Values.cloudProvider.gcp.projectId }}
{{- if regexMatch "^[a-z][-a-z0-9]{4,28}[a-z0-9]$" $project }}{{ $project }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The sign-in file that follows from it. */}}
{{- define "gpu-dev-server.cloudSignIn" -}}
{{- $create := ternary "\ncreate = true" "" .Values.apiService.signIn.cloud.create }}
{{- with include "gpu-dev-server.cloudPrincipal" . }}
{{- if eq $.Values.cloudProvider.name "aws" -}}
# Who may make users and roles in the account may be any of these, and nobody whose name begins otherwise.
# IAM Identity Center: the session is the person.
[[aws]]
account = {{ quote . }}
iam_role = "AWSReservedSSO_*"
session = "*"
user = "aws-sso-{session}"{{ $create }}

[[aws]]
account = {{ quote . }}
iam_user = "*"
user = "aws-user-{iam_user}"{{ $create }}

[[aws]]
account = {{ quote . }}
iam_role = "*"
user = "aws-role-{iam_role}"{{ $create }}
{{- else -}}
[[issuer]]
url = "https://accounts.google.com"
audiences = {{ include "gpu-dev-server.serverIds" $ | nospace | splitList "," | toJson }}

# The project's service accounts. People's own tokens are for every server in the world: docs/guides/signing-in.md.
[[oidc]]
issuer = "https://accounts.google.com"
email = {{ printf "*@%s.iam.gserviceaccount.com" . | quote }}
user = "{email}"{{ $create }}
{{- end }}
{{- end }}
{{- end }}

{{/* The addresses that proofs have to be meant for; where people know the server by none, a name that no other server has. */}}
{{- define "gpu-dev-server.serverIds" -}}
{{- $said := get .Values.apiService.settings "GPU_DEV_AUTH__SERVER_IDS" | default (include "gpu-dev-server.address" .) }}
{{- $principal := include "gpu-dev-server.cloudPrincipal" . }}
{{- if $said }}{{ $said }}{{ else if $principal }}
{{- $cluster := ternary .Values.cloudProvider.aws.eksClusterName .Values.cloudProvider.gcp.gkeClusterName (eq .Values.cloudProvider.name "aws") }}
{{- printf "gpu-dev:%s/%s/%s" $principal (regexMatch "^[-A-Za-z0-9._]+$" $cluster | ternary $cluster .Values.global.prefix) (include "gpu-dev-server.cp" .) }}
{{- end }}
{{- end }}
