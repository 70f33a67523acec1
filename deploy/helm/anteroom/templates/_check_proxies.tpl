{{/* Errors about values of gateway.check and gateway.route that cannot work together, as a list. */}}
{{- define "anteroom.check.proxies" -}}
{{- $p := list -}}
{{- $v := .Values -}}
{{- $g := $v.gateway -}}
{{- $check := $g.check -}}
{{- $route := $g.route -}}
{{- $grpc := eq (include "anteroom.checks.protocol" .) "GRPC" -}}

{{- if hasKey $g.config "check" -}}
{{- $p = append $p "gateway.config.check is set by the chart; remove it, and use gateway.check" -}}
{{- end -}}
{{- if $check.enabled -}}
{{- if not $check.trusted -}}
{{- $p = append $p "gateway.check.trusted is empty: no check would be answered; set the addresses of the proxy's pods, for instance [10.4.0.0/16]" -}}
{{- end -}}
{{- range $check.trusted -}}
{{- if hasSuffix "/0" . -}}
{{- $p = append $p (printf "gateway.check.trusted: %s is every address, so visitors could describe their own requests; set the addresses of the proxy's pods" .) -}}
{{- end -}}
{{- end -}}
{{- if and $grpc (has $check.integration (list "traefik" "nginxGatewayFabric")) -}}
{{- $p = append $p (printf "gateway.check.protocol is GRPC, and %s asks over HTTP only; remove it" $check.integration) -}}
{{- else if and $check.dialect (or $grpc $check.integration) -}}
{{- $p = append $p (printf "gateway.check.dialect is %q, which has an effect only over HTTP and without an integration; remove it" $check.dialect) -}}
{{- else if not (or $check.integration $check.dialect $grpc) -}}
{{- $p = append $p "gateway.check.integration and gateway.check.dialect are both empty, so the gateway cannot read checks; set one of them, or gateway.check.protocol=GRPC" -}}
{{- else -}}
{{- $p = concat $p (include "anteroom.check.deny" . | fromYamlArray) -}}
{{- end -}}
{{- if and (not $grpc) (has (include "anteroom.checks.dialect" .) (list "caddy" "gateway-api")) -}}
{{- range $g.config.rooms -}}
{{- $renew := default dict .session | dig "renew" "true" | toString -}}
{{- if eq $renew "true" -}}
{{- $p = append $p (printf "gateway.config.rooms: session.renew of %s is true, but over HTTP %s sends no renewed pass to visitors, whose sessions would end after session.ttl; set session: {renew: server}" .id (default $check.dialect $check.integration)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $check.failOpen (ne $check.integration "envoyGateway") -}}
{{- $p = append $p "gateway.check.failOpen has an effect with gateway.check.integration=envoyGateway only: other proxies refuse requests while no gateway answers; remove it" -}}
{{- end -}}
{{- if and $check.headers (or $grpc (not (has $check.integration (list "envoyGateway" "gatewayAPI")))) -}}
{{- $p = append $p "gateway.check.headers has an effect with gateway.check.integration=envoyGateway or gatewayAPI over HTTP only: the others send all headers; remove it" -}}
{{- end -}}
{{- if and $check.targetRefs (ne $check.integration "envoyGateway") -}}
{{- $p = append $p "gateway.check.targetRefs has an effect with gateway.check.integration=envoyGateway only; remove it, and name the filter in your routes" -}}
{{- end -}}
{{- $site := include "anteroom.route.site" . -}}
{{- if and (eq $check.integration "envoyGateway") (not $check.targetRefs) (not $site) -}}
{{- $p = append $p "gateway.check.targetRefs is empty, so nothing would be checked; name your routes, for instance [{kind: HTTPRoute, name: shop}], or set gateway.route.enabled=true and gateway.route.backend" -}}
{{- end -}}
{{- if and (eq $check.integration "gatewayAPI") (not $site) -}}
{{- $p = append $p "gateway.check.integration is gatewayAPI, whose filter is part of the HTTPRoute; set gateway.route.enabled=true and gateway.route.backend.name, or write the filter into your own route and set gateway.check.dialect=gateway-api, or gateway.check.protocol=GRPC, instead" -}}
{{- end -}}
{{- if and $site (not $check.integration) -}}
{{- $p = append $p (printf "gateway.route.backend.name is %q, and nothing would ask the check; set gateway.check.integration, or remove gateway.route.backend" $route.backend.name) -}}
{{- end -}}
{{- if and (eq $check.integration "traefik") (not $g.config.rooms) -}}
{{- $p = append $p "gateway.config.rooms is empty, but Traefik needs the names of the rooms' cookies; set the rooms" -}}
{{- end -}}
{{- if and (not $g.config.origins) $g.ingress.enabled -}}
{{- range $g.ingress.hosts -}}
{{- if has "/" (default (list "/") .paths) -}}
{{- $p = append $p (printf "gateway.ingress.hosts: the path / of %s leads to gateways without an origin; set paths: [/.waiting-room], or gateway.config.origins" .host) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.networkPolicy.enabled (not $v.networkPolicy.proxies) -}}
{{- $p = append $p "networkPolicy.proxies is empty: no proxy would reach the port for checks; set its peers, for instance [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: envoy-gateway-system}}}]" -}}
{{- end -}}
{{- else -}}
{{- if $check.integration -}}
{{- $p = append $p (printf "gateway.check.integration is %s, and gateway.check.enabled is false; set it to true, or remove the integration" $check.integration) -}}
{{- end -}}
{{- if and $route.enabled $route.backend.name -}}
{{- $p = append $p (printf "gateway.route.backend.name is %q, but without gateway.check.enabled=true the gateways forward to gateway.config.origins; remove gateway.route.backend" $route.backend.name) -}}
{{- end -}}
{{- end -}}

{{- if and $g.tls.secret (or $route.enabled (eq $check.integration "nginxGatewayFabric")) -}}
{{- $p = append $p "gateway.tls.secret is set, and a Gateway sends plain HTTP to its backends; remove it, because TLS ends in the Gateway" -}}
{{- end -}}
{{- if $route.enabled -}}
{{- if not $route.parentRefs -}}
{{- $p = append $p "gateway.route.parentRefs is empty; name the Gateway, for instance [{name: edge, namespace: infra}]" -}}
{{- end -}}
{{- if not (hasKey $g.config "trusted_proxies") -}}
{{- $p = append $p "gateway.config.trusted_proxies is not set, and gateway.route.enabled is true: all visitors would have the Gateway's address, and no cookie would be Secure; set the addresses of its pods, for instance [10.0.0.0/8]" -}}
{{- end -}}
{{- else if $route.backend.name -}}
{{- $p = append $p (printf "gateway.route.backend.name is %q, and gateway.route.enabled is false; set it to true, or remove gateway.route.backend" $route.backend.name) -}}
{{- end -}}
{{- toYaml $p -}}
{{- end -}}

{{/* Errors about a status that the proxy does not send to the visitor, as a list. */}}
{{- define "anteroom.check.deny" -}}
{{- $dialect := include "anteroom.checks.dialect" . -}}
{{- $deny := int .Values.gateway.check.deny -}}
{{- $redirect := has $deny (list 302 303 307) -}}
{{- $refusal := and (ge $deny 400) (lt $deny 500) -}}
{{- $p := list -}}
{{- if eq $deny 0 -}}
{{- else if eq (include "anteroom.checks.protocol" .) "GRPC" -}}
{{- if not (or $redirect (and (ge $deny 400) (le $deny 599))) -}}
{{- $p = append $p (printf "gateway.check.deny is %d, which is not the status of a refusal; set 302, 303, 307 or 400 to 599" $deny) -}}
{{- end -}}
{{- else if eq $dialect "nginx" -}}
{{- if not (has $deny (list 401 403)) -}}
{{- $p = append $p (printf "gateway.check.deny is %d, which nginx does not send to visitors; set 401 or 403" $deny) -}}
{{- end -}}
{{- else if has $dialect (list "envoy" "gateway-api") -}}
{{- if not (or $redirect $refusal) -}}
{{- $p = append $p (printf "gateway.check.deny is %d, which proxies of the dialect %s do not send to visitors; set 302, 303, 307 or 400 to 499" $deny $dialect) -}}
{{- end -}}
{{- else if not (or $redirect $refusal (eq $deny 503)) -}}
{{- $p = append $p (printf "gateway.check.deny is %d, which proxies of the dialect %s do not send to visitors; set 302, 303, 307, 400 to 499, or 503" $deny $dialect) -}}
{{- end -}}
{{- toYaml $p -}}
{{- end -}}
