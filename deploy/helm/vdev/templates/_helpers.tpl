{{/* The name of every object: the release's name, and the chart's unless the release's contains it. */}}
{{- define "vdev.name" -}}
{{- $name := .Values.nameOverride | default .Chart.Name }}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* The service account: the chart's own, or one that exists. */}}
{{- define "vdev.serviceAccount" -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) }}
{{- fail "serviceAccount.create is false; set serviceAccount.name to an existing account" }}
{{- end }}
{{- .Values.serviceAccount.name | default (include "vdev.name" .) }}
{{- end }}

{{/* The container's security context. The API refuses `privileged` together with these options, so they are removed. */}}
{{- define "vdev.securityContext" -}}
{{- $context := deepCopy .Values.securityContext }}
{{- if $context.privileged }}
{{- $context = omit $context "allowPrivilegeEscalation" "capabilities" }}
{{- else if .Values.standIns.enabled }}
{{- $capabilities := $context.capabilities | default dict }}
{{- $added := append ($capabilities.add | default list) "MKNOD" | uniq }}
{{- $_ := set $context "capabilities" (set $capabilities "add" $added) }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{- define "vdev.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "vdev.labels" -}}
{{ include "vdev.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The controller for nodes without a kubelet: the name of its objects, and of the fleet. */}}
{{- define "vdev.fleet" -}}
{{ include "vdev.name" . }}-fleet
{{- end }}

{{- define "vdev.fleetSelector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}-fleet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "vdev.fleetLabels" -}}
{{ include "vdev.fleetSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "vdev.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The rules of the cluster role of each feature that is on: feature -> rules. Empty if no feature needs the API. */}}
{{- define "vdev.clusterRoles" -}}
{{- if .Values.nodeLabel.enabled }}
node-label:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
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
  - {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
{{- end }}
{{- if .Values.migConfig.enabled }}
mig-config:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list, watch, patch]}
{{- end }}
{{- if .Values.telemetry.podAnnotations }}
pod-load:
  - {apiGroups: [""], resources: [pods], verbs: [list, watch]}
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
