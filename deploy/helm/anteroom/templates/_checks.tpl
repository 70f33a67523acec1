{{/* Names and settings for proxies that ask the check. */}}

{{/* HTTP or GRPC. Over HTTP, Envoy Gateway sends no cookie of a passing check to the visitor. */}}
{{- define "anteroom.checks.protocol" -}}
{{- with .Values.gateway.check -}}
{{- default (ternary "GRPC" "HTTP" (eq .integration "envoyGateway")) .protocol -}}
{{- end -}}
{{- end -}}

{{/* The dialect of checks over HTTP: that of the integration, or gateway.check.dialect. */}}
{{- define "anteroom.checks.dialect" -}}
{{- $check := .Values.gateway.check -}}
{{- default $check.dialect (index (dict "envoyGateway" "gateway-api" "traefik" "traefik" "gatewayAPI" "gateway-api" "nginxGatewayFabric" "nginx" "" "") $check.integration) -}}
{{- end -}}

{{/* The section check of the gateway's configuration. */}}
{{- define "anteroom.checks.settings" -}}
{{- with .Values.gateway.check -}}
{{- if .enabled -}}
trusted: {{ toYaml .trusted | nindent 2 }}
{{- if eq (include "anteroom.checks.protocol" $) "GRPC" }}
grpc: ":8081"
{{- else }}
listen: ":8081"
dialect: {{ include "anteroom.checks.dialect" $ }}
{{- end }}
{{- if .deny }}
deny: {{ int .deny }}
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "anteroom.checks.service" -}}
{{ include "anteroom.fullname" . }}-gateway-checks
{{- end -}}

{{- define "anteroom.checks.host" -}}
{{ include "anteroom.checks.service" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The request headers for proxies that send only listed ones. They identify the request and the visitor, and choose the form of the response. */}}
{{- define "anteroom.checks.headers" -}}
{{- $headers := list "accept" "accept-language" "access-control-request-method" "cookie" "origin" "sec-fetch-dest" "sec-fetch-mode" "sec-purpose" "upgrade" "user-agent" "x-forwarded-for" "x-forwarded-proto" "x-http-method" "x-http-method-override" "x-method-override" "x-waiting-room-pass" "x-waiting-room-permit" "x-waiting-room-token" -}}
{{- range .Values.gateway.check.headers -}}
{{- $headers = append $headers (lower .) -}}
{{- end -}}
{{- toYaml (uniq $headers) -}}
{{- end -}}

{{/* The cookies that a passing check may set: the pass of each room, with TLS and without. */}}
{{- define "anteroom.checks.cookies" -}}
{{- $names := list -}}
{{- range .Values.gateway.config.rooms -}}
{{- $names = append $names (printf "__Host-wr_%s_pass" .id) -}}
{{- $names = append $names (printf "wr_%s_pass" .id) -}}
{{- end -}}
{{- toYaml $names -}}
{{- end -}}

{{/* "true" if the chart routes the requests to the site and has them checked. */}}
{{- define "anteroom.route.site" -}}
{{- with .Values.gateway -}}
{{- if and .route.enabled .check.enabled .route.backend.name -}}true{{- end -}}
{{- end -}}
{{- end -}}
