{{/* Parts that all pods have; each takes dict "root" $ "component" NAME "values" VALUES. */}}

{{- define "anteroom.pod.security" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "anteroom.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "anteroom.container" -}}
image: {{ include "anteroom.image" (dict "image" .root.Values.image "tag" .root.Chart.AppVersion) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
env:
  {{- include "anteroom.store.env" .root | trim | nindent 2 }}
  {{- if eq .component "bulkworker" }}
  {{- $admin := .values.adminToken }}
  {{- if $admin.name }}
  {{- include "anteroom.secretEnv" (dict "name" "ANTEROOM_ADMIN__TOKEN" "secret" $admin) | nindent 2 }}
  {{- else if not .values.apiTokens }}
  {{- include "anteroom.secretEnv" (dict "name" "ANTEROOM_ADMIN__TOKEN" "secret" (dict "name" (include "anteroom.generated" .root) "key" "bulk-admin-token")) | nindent 2 }}
  {{- end }}
  {{- end }}
  {{- range .values.secretSettings }}
  {{- include "anteroom.secretEnv" (dict "name" (printf "ANTEROOM_%s" (.setting | replace "." "__" | upper)) "secret" .secret) | nindent 2 }}
  {{- end }}
  {{- with .values.resources.limits }}
  {{- if .memory }}
  # Near the limit the garbage collector works harder, before the kernel ends the process.
  - name: GOMEMLIMIT
    value: {{ include "anteroom.bytes" (dict "quantity" .memory "percent" 90) | quote }}
  {{- end }}
  {{- end }}
{{- with .values.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "anteroom.container.security" . | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/anteroom/config, readOnly: true}
  {{- if .values.files }}
  - {name: files, mountPath: /etc/anteroom/files, readOnly: true}
  {{- end }}
  {{- if include (printf "anteroom.%s.secrets" .component) .root }}
  - {name: secrets, mountPath: /etc/anteroom/secrets, readOnly: true}
  {{- end }}
{{- end -}}

{{- define "anteroom.pod.identity" -}}
serviceAccountName: {{ include "anteroom.serviceAccount" .root }}
automountServiceAccountToken: false
# The programs do not use the variables of the namespace's Services.
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "anteroom.pod.security" . | nindent 2 }}
{{- end -}}

{{- define "anteroom.pod.volumes" -}}
- name: config
  configMap: {name: {{ include "anteroom.fullname" .root }}-{{ .component }}}
{{- if .values.files }}
- name: files
  configMap: {name: {{ include "anteroom.fullname" .root }}-{{ .component }}-files}
{{- end }}
{{- with include (printf "anteroom.%s.secrets" .component) .root }}
- name: secrets
  projected:
    defaultMode: 0440
    sources: {{- . | trim | nindent 6 }}
{{- end }}
{{- end -}}

{{/* Node selection of pods. */}}
{{- define "anteroom.pod.placement" -}}
{{- $selector := dict "root" .root "component" .component -}}
{{- $spread := .values.spread -}}
{{- if or $spread.zones $spread.nodes }}
topologySpreadConstraints:
  {{- range $key, $when := dict "topology.kubernetes.io/zone" $spread.zones "kubernetes.io/hostname" $spread.nodes }}
  {{- if $when }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: {{ $when }}
    labelSelector:
      matchLabels: {{- include "anteroom.selector" $selector | nindent 8 }}
    # Count pods of the same version only, not those that a rolling update ends.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
  {{- end }}
{{- end }}
{{- if .values.affinity }}
affinity: {{- toYaml .values.affinity | nindent 2 }}
{{- else if and (eq .component "bulkworker") .root.Values.gateway.enabled }}
# Jobs should not take CPU from a gateway during a sale.
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "anteroom.selector" (dict "root" .root "component" "gateway") | nindent 14 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Parts of a Deployment that both programs have. */}}
{{- define "anteroom.deployment.strategy" -}}
{{- if not .values.autoscaling.enabled }}
replicas: {{ int .values.replicas }}
{{- else }}
{{- /* Without replicas, the upgrade that turns autoscaling on would scale to 1. So keep the running number, if helm can look it up. */}}
{{- with lookup "apps/v1" "Deployment" .root.Release.Namespace (printf "%s-%s" (include "anteroom.fullname" .root) .component) }}
replicas: {{ int .spec.replicas }}
{{- end }}
{{- end }}
revisionHistoryLimit: 5
# A new pod must be ready for 5 s before the next one is replaced.
minReadySeconds: 5
strategy:
  type: RollingUpdate
  rollingUpdate:
    # Never run fewer pods than wanted: each serves a part of the crowd.
    maxUnavailable: 0
    maxSurge: {{ .values.maxSurge }}
selector:
  matchLabels: {{- include "anteroom.selector" . | nindent 4 }}
{{- end -}}

{{- define "anteroom.pod.metadata" -}}
labels:
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "anteroom.podLabels" . | nindent 2 }}
annotations:
  # A changed configuration is rolled out pod by pod instead of being reloaded (SIGHUP). A faulty file stops at the first new
  # pod, whose log names the problems, while the old pods go on; settings that need a restart take effect too. No place is
  # lost. Secrets and gateway.files are not in the checksum: the running process reloads them.
  checksum/config: {{ include (printf "anteroom.%s.config" .component) .root | sha256sum }}
  {{- with .values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
