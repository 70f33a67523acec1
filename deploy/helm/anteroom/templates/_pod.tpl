{{/* Parts that the pods have in common; each takes dict "root" $ "component" NAME "values" VALUES. */}}

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
  # The collector works harder near the limit, rather than let the kernel end the process.
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
# Variables of the namespace's Services would only be read past.
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

{{/* Where pods go. */}}
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
    # Only pods of the same version: those that a rolling update is about to end do not count.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
  {{- end }}
{{- end }}
{{- if .values.affinity }}
affinity: {{- toYaml .values.affinity | nindent 2 }}
{{- else if and (eq .component "bulkworker") .root.Values.gateway.enabled }}
# Jobs are for when there is room; a gateway in the middle of a sale has none to give.
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

{{/* The parts of a Deployment that both programs have. */}}
{{- define "anteroom.deployment.strategy" -}}
{{- if not .values.autoscaling.enabled }}
replicas: {{ int .values.replicas }}
{{- else }}
{{- /* Left out, it would fall to 1 in the upgrade that turns autoscaling on. So it is what it is, as far as helm can ask. */}}
{{- with lookup "apps/v1" "Deployment" .root.Release.Namespace (printf "%s-%s" (include "anteroom.fullname" .root) .component) }}
replicas: {{ int .spec.replicas }}
{{- end }}
{{- end }}
revisionHistoryLimit: 5
# Ready for so long before the next one is replaced.
minReadySeconds: 5
strategy:
  type: RollingUpdate
  rollingUpdate:
    # Never fewer than wanted, as each has its share of a crowd.
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
  # A changed configuration file is rolled out pod by pod instead of being reloaded in place (SIGHUP): a file with a fault
  # then stops at the first new pod, with its problems in that pod's log, while the old ones go on; settings that need a
  # restart are in force too; and helm upgrade --wait tells when. It costs nobody their place. Secrets and gateway.files are
  # not in here: a change of those is taken by the running process.
  checksum/config: {{ include (printf "anteroom.%s.config" .component) .root | sha256sum }}
  {{- with .values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
