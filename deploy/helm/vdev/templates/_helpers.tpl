{{/* The name of every object: the release's, with the chart's unless it says so already. */}}
{{- define "vdev.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "vdev.selector" -}}
app.kubernetes.io/name: vdev
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "vdev.labels" -}}
{{ include "vdev.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "vdev.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The rules of the cluster role of each feature that is on: feature -> rules. Nothing, where none needs the API. */}}
{{- define "vdev.clusterRoles" -}}
{{- if .Values.nodeLabel.enabled }}
node-label:
  - {apiGroups: [""], resources: [nodes], verbs: [get]}
{{- end }}
{{- if .Values.node.labels }}
node-labels:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list, watch, patch]}
{{- end }}
{{- if .Values.node.status }}
node-status:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
  - {apiGroups: [""], resources: [nodes/status], verbs: [patch]}
{{- end }}
{{- if .Values.node.events }}
node-events:
  - {apiGroups: [""], resources: [nodes], verbs: [get]}
{{- end }}
{{- if .Values.migConfig.enabled }}
mig-config:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list, watch, patch]}
{{- end }}
{{- if .Values.dra.enabled }}
dra:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
  - {apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [list, watch, create, update, delete]}
  - {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get]}
  - {apiGroups: [resource.k8s.io], resources: [resourceclaims/status], verbs: [patch]}
  {{- with .Values.dra.drivers }}
  - apiGroups: [resource.k8s.io]
    resources: [resourceclaims/driver]
    resourceNames: {{ toJson . }}
    verbs: ["associated-node:patch"]
  {{- end }}
{{- end }}
{{- end }}
