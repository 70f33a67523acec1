{{/* Refuses values that the schema accepts but that cannot work together, in one error with each value and the remedy. */}}
{{- define "anteroom.check" -}}
{{- $p := list -}}
{{- $v := .Values -}}
{{- $g := $v.gateway -}}
{{- $b := $v.bulkworker -}}

{{- $full := include "anteroom.fullname" . -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $full) -}}
{{- $p = append $p (printf "fullnameOverride is empty, and the release makes it %q, which is not a valid name of a Service; set fullnameOverride to lower-case letters, digits and dashes, beginning with a letter" $full) -}}
{{- end -}}
{{- if not (or $g.enabled $b.enabled) -}}
{{- $p = append $p "gateway.enabled and bulkworker.enabled are both false: there is nothing to install; set one to true" -}}
{{- end -}}

{{- $stores := 0 -}}
{{- range list $v.store.url $v.store.urlSecret.name $v.valkey.enabled -}}{{- if . -}}{{- $stores = add1 $stores -}}{{- end -}}{{- end -}}
{{- if eq (int $stores) 0 -}}
{{- $p = append $p "store.url is empty: the pods need a Redis or Valkey; set store.url or store.urlSecret.name, or for a trial valkey.enabled=true" -}}
{{- else if gt (int $stores) 1 -}}
{{- $p = append $p "store.url, store.urlSecret.name and valkey.enabled: more than one is set; keep one of them" -}}
{{- end -}}
{{- if or (contains "@" $v.store.url) (contains "sentinel_password=" $v.store.url) -}}
{{- $p = append $p "store.url holds credentials, which would be readable in the pod's specification; name their Secret in store.passwordSecret (sentinels: store.sentinelPasswordSecret), or put the whole URL into a Secret and name it in store.urlSecret" -}}
{{- end -}}
{{- if and $v.store.username (not $v.store.passwordSecret.name) -}}
{{- $p = append $p (printf "store.username is %q without a password; name its Secret in store.passwordSecret.name" $v.store.username) -}}
{{- end -}}
{{- if and $v.store.sentinelPasswordSecret.name (not (hasPrefix "redis-sentinel://" $v.store.url)) -}}
{{- $p = append $p "store.sentinelPasswordSecret.name is set, but store.url is not redis-sentinel://…; remove it" -}}
{{- end -}}
{{- if and (not $v.store.tls.secret) (or $v.store.tls.clientCertificate $v.store.tls.serverName) -}}
{{- $p = append $p "store.tls.secret is empty, so store.tls.clientCertificate and store.tls.serverName have no effect; name the Secret with ca.crt, or remove them" -}}
{{- end -}}
{{- if and $v.store.tls.secret $v.store.urlSecret.name -}}
{{- $p = append $p "store.tls is not used with store.urlSecret, whose URL has its own TLS parameters; remove store.tls, or use store.url" -}}
{{- end -}}
{{- if and $v.valkey.enabled (not $v.valkey.passwordSecret.name) (not $v.generateSecrets) -}}
{{- $p = append $p "valkey.passwordSecret.name is empty; name a Secret with the password, or for a trial set generateSecrets=true" -}}
{{- end -}}
{{- if and $v.valkey.enabled (not $v.valkey.resources.limits.memory) -}}
{{- $p = append $p "valkey.resources.limits.memory is missing: maxmemory is calculated from it; set for instance 1Gi" -}}
{{- end -}}

{{- if $g.enabled -}}
{{- $several := or $g.autoscaling.enabled (gt (int $g.replicas) 1) -}}
{{- if not (or $g.config.origins $g.check.enabled) -}}
{{- $p = append $p "gateway.config.origins is empty: the gateway has no site to protect; set for instance [{id: shop, servers: [\"http://shop.shop.svc:80\"]}], or set gateway.check.enabled=true, if another proxy forwards the requests" -}}
{{- end -}}
{{- if and (not $g.tokenKeys) $several -}}
{{- $p = append $p (printf "gateway.tokenKeys is empty, and %s must sign with the same key (generated keys would differ between them and change with each rendering); make one with: kubectl create secret generic anteroom-keys --from-literal=k1=\"$(openssl rand -base64 48)\" and set gateway.tokenKeys=[{id: k1, secret: {name: anteroom-keys, key: k1}}]" (ternary "gateways that scale" (printf "%d gateways" (int $g.replicas)) $g.autoscaling.enabled)) -}}
{{- else if and (not $g.tokenKeys) (not $v.generateSecrets) -}}
{{- $p = append $p "gateway.tokenKeys is empty: a store outside the pod requires a key; make one with: kubectl create secret generic anteroom-keys --from-literal=k1=\"$(openssl rand -base64 48)\" and set gateway.tokenKeys=[{id: k1, secret: {name: anteroom-keys, key: k1}}], or for a trial set generateSecrets=true" -}}
{{- end -}}
{{- range list (dict "name" "gateway.tokenKeys" "list" $g.tokenKeys "by" "id") (dict "name" "gateway.adminTokens" "list" $g.adminTokens "by" "name") (dict "name" "gateway.secretFiles" "list" $g.secretFiles "by" "path") -}}
{{- $p = concat $p (include "anteroom.check.twice" . | fromYamlArray) -}}
{{- end -}}
{{- if gt (len $g.tokenKeys) 1 -}}
{{- $active := 0 -}}
{{- range $g.tokenKeys -}}{{- if .active -}}{{- $active = add1 $active -}}{{- end -}}{{- end -}}
{{- if ne (int $active) 1 -}}
{{- $p = append $p (printf "gateway.tokenKeys: %d of %d keys are active; use exactly one with active: true; the others only verify" (int $active) (len $g.tokenKeys)) -}}
{{- end -}}
{{- end -}}
{{- if not (or $g.adminTokens $v.generateSecrets) -}}
{{- $p = append $p "gateway.adminTokens is empty: the admin port is open to the cluster and needs a token; make one with: kubectl create secret generic anteroom-admin --from-literal=ops=\"$(openssl rand -hex 32)\" and set gateway.adminTokens=[{name: ops, secret: {name: anteroom-admin, key: ops}}], or for a trial set generateSecrets=true" -}}
{{- end -}}
{{- if and $g.service.externalTrafficPolicy (eq $g.service.type "ClusterIP") -}}
{{- $p = append $p (printf "gateway.service.externalTrafficPolicy is %q, which a Service of type ClusterIP cannot have; remove it, or set gateway.service.type" $g.service.externalTrafficPolicy) -}}
{{- end -}}
{{- if and $g.service.loadBalancerSourceRanges (ne $g.service.type "LoadBalancer") -}}
{{- $p = append $p (printf "gateway.service.loadBalancerSourceRanges needs type LoadBalancer, and the type is %s: the ranges would not be enforced; remove them, or set gateway.service.type" $g.service.type) -}}
{{- end -}}
{{- if $g.ingress.enabled -}}
{{- if not $g.ingress.hosts -}}
{{- $p = append $p "gateway.ingress.hosts is empty; set for instance [{host: shop.example.com, paths: [/]}]" -}}
{{- end -}}
{{- range $g.ingress.hosts -}}
{{- if and .paths (not (has "/" .paths)) (not (has "/.waiting-room" .paths)) -}}
{{- $p = append $p (printf "gateway.ingress.hosts: the paths of %s have neither / nor /.waiting-room, which the waiting page polls; add /.waiting-room" .host) -}}
{{- end -}}
{{- end -}}
{{- if not (hasKey $g.config "trusted_proxies") -}}
{{- $p = append $p "gateway.config.trusted_proxies is not set, and gateway.ingress.enabled is true: all visitors would have the ingress controller's address, and no cookie would be Secure; set the addresses of its pods, for instance [10.0.0.0/8]" -}}
{{- end -}}
{{- end -}}
{{- if and $g.autoscaling.enabled (gt (int $g.autoscaling.minReplicas) (int $g.autoscaling.maxReplicas)) -}}
{{- $p = append $p (printf "gateway.autoscaling.minReplicas is %d, more than maxReplicas (%d)" (int $g.autoscaling.minReplicas) (int $g.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- $p = concat $p (include "anteroom.check.proxies" . | fromYamlArray) -}}
{{- if and $v.networkPolicy.enabled (not $v.networkPolicy.origins) (or $g.config.origins (not $g.check.enabled)) -}}
{{- $p = append $p "networkPolicy.origins is empty: no gateway would reach its origin; set egress rules, for instance [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}], ports: [{port: 8080}]}], or [{}] for anywhere" -}}
{{- end -}}
{{- end -}}

{{- if $b.enabled -}}
{{- if not (or $b.adminToken.name $b.apiTokens $v.generateSecrets) -}}
{{- $p = append $p "bulkworker.adminToken.name is empty: its API is open to the cluster and needs a token; make one with: kubectl create secret generic anteroom-bulk --from-literal=token=\"$(openssl rand -hex 32)\" and set bulkworker.adminToken.name=anteroom-bulk, or set bulkworker.apiTokens, or for a trial set generateSecrets=true" -}}
{{- end -}}
{{- range list (dict "name" "bulkworker.apiTokens" "list" $b.apiTokens "by" "name") (dict "name" "bulkworker.secretFiles" "list" $b.secretFiles "by" "path") -}}
{{- $p = concat $p (include "anteroom.check.twice" . | fromYamlArray) -}}
{{- end -}}
{{- if and $b.autoscaling.enabled (gt (int $b.autoscaling.minReplicas) (int $b.autoscaling.maxReplicas)) -}}
{{- $p = append $p (printf "bulkworker.autoscaling.minReplicas is %d, more than maxReplicas (%d)" (int $b.autoscaling.minReplicas) (int $b.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- end -}}

{{- if and $v.networkPolicy.enabled (not $v.valkey.enabled) (not $v.networkPolicy.store) -}}
{{- $p = append $p "networkPolicy.store is empty: no pod would reach the store; set egress rules, for instance [{to: [{ipBlock: {cidr: 10.1.2.0/24}}], ports: [{port: 6379}, {port: 26379}]}]" -}}
{{- end -}}

{{- range $program := list "gateway" "bulkworker" -}}
{{- range (index $v $program).secretSettings -}}
{{- if and (eq $program "gateway") (hasPrefix "check." .setting) -}}
{{- $p = append $p (printf "gateway.secretSettings: %s is set by the chart; use gateway.check" .setting) -}}
{{- end -}}
{{- if or (eq .setting "store.url") (eq .setting "admin.token") (hasPrefix "tokens." .setting) -}}
{{- $p = append $p (printf "%s.secretSettings: %s is set by the chart; use %s" $program .setting (ternary "store.urlSecret" (ternary "gateway.adminTokens or gateway.tokenKeys" "bulkworker.adminToken" (eq $program "gateway")) (eq .setting "store.url"))) -}}
{{- end -}}
{{- end -}}
{{- $p = concat $p (include "anteroom.check.twice" (dict "name" (printf "%s.secretSettings" $program) "list" (index $v $program).secretSettings "by" "setting") | fromYamlArray) -}}
{{- end -}}

{{- if $p -}}
{{- fail (printf "\n%d problems with the values:\n  - %s\n" (len $p) (join "\n  - " $p)) -}}
{{- end -}}
{{- end -}}

{{/* Refuses elements of a list with the same name, because they would be the same file. */}}
{{- define "anteroom.check.twice" -}}
{{- $list := . -}}
{{- $seen := list -}}
{{- $p := list -}}
{{- range .list -}}
{{- $name := index . $list.by -}}
{{- if has $name $seen -}}
{{- $p = append $p (printf "%s: the %s %q appears twice; make each unique" $list.name $list.by $name) -}}
{{- end -}}
{{- $seen = append $seen $name -}}
{{- end -}}
{{- toYaml $p -}}
{{- end -}}
