{{/* The programs' configuration files: the values' config, with addresses and mounted files of the pod. */}}

{{- define "anteroom.gateway.config" -}}
{{- $v := .Values.gateway -}}
{{- $config := deepCopy $v.config -}}
{{- $_ := set $config "listen" ":8080" -}}
{{- $_ := set $config "shutdown_timeout" (printf "%ds" (int $v.shutdownTimeoutSeconds)) -}}
{{- with include "anteroom.checks.settings" . -}}
{{- $_ := set $config "check" (fromYaml .) -}}
{{- end -}}
{{- $admins := list -}}
{{- range $v.adminTokens -}}
{{- $admins = append $admins (dict "name" .name "role" (default "write" .role) "token_file" (printf "/etc/anteroom/secrets/admin/%s" .name)) -}}
{{- end -}}
{{- if not $admins -}}
{{- $admins = list (dict "name" "generated" "role" "write" "token_file" "/etc/anteroom/secrets/admin/generated") -}}
{{- end -}}
{{- $_ := set $config "admin" (dict "listen" ":9090" "tokens" $admins) -}}
{{- $keys := list -}}
{{- range $v.tokenKeys -}}
{{- $alg := default "HS256" .alg -}}
{{- $file := ternary "private_key_file" "secret_file" (ne $alg "HS256") -}}
{{- $keys = append $keys (dict "id" .id "alg" $alg "active" (or (default false .active) (eq (len $v.tokenKeys) 1)) $file (printf "/etc/anteroom/secrets/keys/%s" .id)) -}}
{{- end -}}
{{- if not $keys -}}
{{- $keys = list (dict "id" "generated" "alg" "HS256" "active" true "secret_file" "/etc/anteroom/secrets/keys/generated") -}}
{{- end -}}
{{- $_ := set $config "tokens" (merge (dict "keys" $keys) (default dict $config.tokens)) -}}
{{- if $v.tls.secret -}}
{{- $_ := set $config "tls" (merge (dict "cert_file" "/etc/anteroom/secrets/tls/tls.crt" "key_file" "/etc/anteroom/secrets/tls/tls.key") (default dict $config.tls)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- define "anteroom.bulkworker.config" -}}
{{- $v := .Values.bulkworker -}}
{{- $config := deepCopy $v.config -}}
{{- $_ := set $config "listen" ":8090" -}}
{{- $teams := list -}}
{{- range $v.apiTokens -}}
{{- $teams = append $teams (merge (dict "token_file" (printf "/etc/anteroom/secrets/teams/%s" .name)) (omit . "secret")) -}}
{{- end -}}
{{- if $teams -}}
{{- $_ := set $config "api_tokens" $teams -}}
{{- end -}}
{{- $_ := set $config "worker" (merge (dict "shutdown_grace" (printf "%ds" (int $v.shutdownGraceSeconds))) (default dict $config.worker)) -}}
{{- toYaml $config -}}
{{- end -}}

{{/*
The secrets of a pod, as sources of one projected volume. The volume is mounted as a whole and not by subPath, so that the
kubelet updates it when a Secret changes. The program then reads changed *_file settings within a second.
*/}}
{{- define "anteroom.gateway.secrets" -}}
{{- $generated := include "anteroom.generated" . -}}
{{- range .Values.gateway.tokenKeys }}
{{ include "anteroom.projected" (dict "secret" .secret "path" (printf "keys/%s" .id)) }}
{{- else }}
{{ include "anteroom.projected" (dict "secret" (dict "name" $generated "key" "token-key") "path" "keys/generated") }}
{{- end }}
{{- range .Values.gateway.adminTokens }}
{{ include "anteroom.projected" (dict "secret" .secret "path" (printf "admin/%s" .name)) }}
{{- else }}
{{ include "anteroom.projected" (dict "secret" (dict "name" $generated "key" "admin-token") "path" "admin/generated") }}
{{- end }}
{{- with .Values.gateway.tls.secret }}
- secret:
    name: {{ . }}
    items:
      - {key: tls.crt, path: tls/tls.crt}
      - {key: tls.key, path: tls/tls.key}
{{- end }}
{{- range .Values.gateway.secretFiles }}
{{ include "anteroom.projected" (dict "secret" .secret "path" (printf "files/%s" .path)) }}
{{- end }}
{{- include "anteroom.store.secrets" . }}
{{- end -}}

{{- define "anteroom.bulkworker.secrets" -}}
{{- range .Values.bulkworker.apiTokens }}
{{ include "anteroom.projected" (dict "secret" .secret "path" (printf "teams/%s" .name)) }}
{{- end }}
{{- range .Values.bulkworker.secretFiles }}
{{ include "anteroom.projected" (dict "secret" .secret "path" (printf "files/%s" .path)) }}
{{- end }}
{{- include "anteroom.store.secrets" . }}
{{- end -}}

{{- define "anteroom.store.secrets" -}}
{{- with .Values.store.tls }}
{{- if .secret }}
- secret:
    name: {{ .secret }}
    items:
      - {key: ca.crt, path: store/ca.crt}
      {{- if .clientCertificate }}
      - {key: tls.crt, path: store/tls.crt}
      - {key: tls.key, path: store/tls.key}
      {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "anteroom.projected" -}}
- secret:
    name: {{ .secret.name }}
    items:
      - {key: {{ .secret.key | quote }}, path: {{ .path | quote }}}
{{- end -}}

{{/*
The store's URL, with passwords as $(NAME): the kubelet expands them from variables defined before it. The URL is in the
environment, because the configuration file is in a ConfigMap.
*/}}
{{- define "anteroom.store.env" -}}
{{- $store := .Values.store -}}
{{- if $store.urlSecret.name }}
{{ include "anteroom.secretEnv" (dict "name" "ANTEROOM_STORE__URL" "secret" $store.urlSecret) }}
{{- else if .Values.valkey.enabled }}
{{ include "anteroom.secretEnv" (dict "name" "STORE_PASSWORD" "secret" (include "anteroom.valkey.password" . | fromYaml)) }}
- name: ANTEROOM_STORE__URL
  value: redis://:$(STORE_PASSWORD)@{{ include "anteroom.fullname" . }}-valkey:6379
{{- else }}
{{- $user := "" }}
{{- $query := list }}
{{- if $store.passwordSecret.name }}
{{- $user = printf "%s:$(STORE_PASSWORD)@" ($store.username | urlquery | replace "+" "%20") }}
{{ include "anteroom.secretEnv" (dict "name" "STORE_PASSWORD" "secret" $store.passwordSecret) }}
{{- end }}
{{- if $store.sentinelPasswordSecret.name }}
{{- $query = append $query "sentinel_password=$(STORE_SENTINEL_PASSWORD)" }}
{{ include "anteroom.secretEnv" (dict "name" "STORE_SENTINEL_PASSWORD" "secret" $store.sentinelPasswordSecret) }}
{{- end }}
{{- with $store.tls }}
{{- if .secret }}
{{- $query = append $query "ca_file=/etc/anteroom/secrets/store/ca.crt" }}
{{- if .clientCertificate }}
{{- $query = concat $query (list "cert_file=/etc/anteroom/secrets/store/tls.crt" "key_file=/etc/anteroom/secrets/store/tls.key") }}
{{- end }}
{{- if .serverName }}
{{- $query = append $query (printf "server_name=%s" .serverName) }}
{{- end }}
{{- end }}
{{- end }}
{{- $url := splitn "://" 2 $store.url }}
{{- $joint := ternary "" (ternary "&" "?" (contains "?" $store.url)) (empty $query) }}
- name: ANTEROOM_STORE__URL
  value: {{ printf "%s://%s%s%s%s" $url._0 $user $url._1 $joint (join "&" $query) | quote }}
{{- end }}
{{- end -}}

{{- define "anteroom.secretEnv" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef: {name: {{ .secret.name }}, key: {{ .secret.key | quote }}}
{{- end -}}

{{- define "anteroom.valkey.password" -}}
{{- $secret := .Values.valkey.passwordSecret -}}
name: {{ default (include "anteroom.generated" .) $secret.name }}
key: {{ ternary $secret.key "valkey-password" (ne $secret.name "") }}
{{- end -}}
