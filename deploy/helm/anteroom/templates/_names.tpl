{{/* The first part of all names. 40 characters leave room for suffixes of the chart and of controllers within 63. */}}
{{- define "anteroom.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels of a component that never change: dict "root" $ "component" NAME. */}}
{{- define "anteroom.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of pods. They do not contain the chart's version, or each version would restart every pod. */}}
{{- define "anteroom.podLabels" -}}
{{ include "anteroom.selector" . }}
app.kubernetes.io/part-of: anteroom
{{- end -}}

{{- define "anteroom.labels" -}}
{{ include "anteroom.podLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "anteroom.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "anteroom.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The reference of an image: dict "image" VALUES "tag" DEFAULT. */}}
{{- define "anteroom.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .tag .image.tag }}
{{- end -}}
{{- end -}}

{{/* The Secret that holds generated secrets. */}}
{{- define "anteroom.generated" -}}
{{ include "anteroom.fullname" . }}-generated
{{- end -}}

{{/* A percentage of a memory quantity, in bytes: dict "quantity" TEXT "percent" N. */}}
{{- define "anteroom.bytes" -}}
{{- $digits := regexFind "^[0-9]+" .quantity -}}
{{- $unit := trimPrefix $digits .quantity -}}
{{- $factor := index (dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824) $unit -}}
{{- div (mul (int64 $digits) (int64 $factor) (int64 .percent)) 100 -}}
{{- end -}}
