{{- define "tagae.labels" -}}
app.kubernetes.io/name: tagae
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tagae.redisLabels" -}}
app.kubernetes.io/name: tagae-redis
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Values that do not fit together. A schema cannot see them. */ -}}
{{- define "tagae.check" -}}
{{- $kube := eq .Values.kind "rayservice" }}
{{- if and $kube (eq .Values.store.kind "local") }}
{{- fail "store.kind: expected redis with kind rayservice, since its pods share the state, came local" }}
{{- end }}
{{- if and (not $kube) (ne .Values.device "cpu") }}
{{- fail (printf "device: expected cpu with kind deployment, came %s; use kind rayservice for GPUs" .Values.device) }}
{{- end }}
{{- if and (eq .Values.store.kind "redis") (not .Values.redis.create) (not .Values.redis.url) }}
{{- fail "redis: expected create: true, or the url of your own Redis, came neither" }}
{{- end }}
{{- if and $kube (not .Values.redis.create) (not .Values.redis.address) }}
{{- fail "redis.address: expected HOST:PORT of your own Redis for Ray, came none" }}
{{- end }}
{{- if and .Values.redis.create (or .Values.redis.url .Values.redis.address) }}
{{- fail "redis: expected create: false with the url of your own Redis, came both" }}
{{- end }}
{{- $weights := dict "weights" (omit .Values.weights "meshes") }}
{{- range $mesh, $one := .Values.weights.meshes }}{{ $_ := set $weights (printf "weights.meshes.%s" $mesh) $one }}{{ end }}
{{- range $name, $one := $weights }}
{{- $sources := list $one.url (dig "urlSecret" "name" "" $one) (dig "claim" "name" "" $one) | compact }}
{{- if ne (len $sources) (ternary 1 0 (ne $one.sha256 "")) }}
{{- fail (printf "%s: expected sha256, and one of url, urlSecret.name and claim.name, or none of them" $name) }}
{{- end }}
{{- end }}
{{- range $name := list "ingress" "session" "meta" "scorer" }}
{{- $one := index $.Values.replicas $name }}
{{- if gt (int $one.min) (int $one.max) }}
{{- fail (printf "replicas.%s: expected min up to max, came %v and %v" $name $one.min $one.max) }}
{{- end }}
{{- end }}
{{- range $name := list "cpu" "gpu" }}
{{- $one := index $.Values $name }}
{{- if gt (int $one.min) (int $one.max) }}
{{- fail (printf "%s: expected min up to max, came %v and %v" $name $one.min $one.max) }}
{{- end }}
{{- end }}
{{- $pods := .Values.cpu }}
{{- $ingress := include "tagae.fillsPods" (dict "replicas" .Values.replicas.ingress "pods" $pods) }}
{{- if and $kube (not $ingress) (not (include "tagae.fillsPods" (dict "replicas" .Values.replicas.session "pods" $pods))) }}
{{- fail (printf "cpu.min: expected a replica for each of %v pods; raise replicas.ingress.min, or lower cpu.min" $pods.min) }}
{{- end }}
{{- if and (include "tagae.gpuPods" .) (not (include "tagae.fillsPods" (dict "replicas" .Values.replicas.scorer "pods" .Values.gpu))) }}
{{- fail (printf "gpu.min: expected a scorer for each of %v pods; raise replicas.scorer.min, or lower gpu.min" .Values.gpu.min) }}
{{- end }}
{{- end }}

{{- /* Not empty if there are GPU pods. */ -}}
{{- define "tagae.gpuPods" -}}
{{- if and (eq .Values.kind "rayservice") (ne .Values.device "cpu") }}true{{ end }}
{{- end }}

{{- /* How many replicas of a deployment a pod may have: its share, rounded up. Of a dict: replicas, pods, both with max. */ -}}
{{- define "tagae.perPod" -}}
{{ divf .replicas.max .pods.max | ceil | int }}
{{- end }}

{{- /* Not empty if replicas are enough for all but one of the pods, and one more. Of a dict: replicas, pods. */ -}}
{{- define "tagae.fillsPods" -}}
{{- if gt (int .replicas.min) (mul (sub (int .pods.min) 1) (include "tagae.perPod" . | int) | int) }}true{{ end }}
{{- end }}

{{- /* All settings of TAGAE by group: those of the chart, and those of the values, which win. */ -}}
{{- define "tagae.settings" -}}
{{- $names := list }}
{{- $services := list .Release.Name }}
{{- if eq .Values.kind "rayservice" }}{{ $services = append $services (printf "%s-serve-svc" .Release.Name) }}{{ end }}
{{- range $service := $services }}
{{- range $suffix := list "" (printf ".%s" $.Release.Namespace) (printf ".%s.svc" $.Release.Namespace) (printf ".%s.svc.cluster.local" $.Release.Namespace) }}
{{- $names = append $names (printf "%s%s" $service $suffix) }}
{{- end }}
{{- end }}
{{- $serve := dict "host" "0.0.0.0" "tokens_file" "/etc/tagae/tokens.toml" "allowed_hosts" (concat $names .Values.hosts) }}
{{- $scorer := dict "device" .Values.device }}
{{- if eq .Values.kind "rayservice" }}
{{- if include "tagae.gpuPods" . }}
{{- $one := .Values.replicas.scorer }}
{{- $scorer = dict "device" .Values.device "place" "replicas" "num_replicas" (int $one.min) "max_replicas" (int $one.max) "num_cpus" 0 "num_gpus" $one.gpus "meta_replicas" (int .Values.replicas.meta.min) "max_meta_replicas" (int .Values.replicas.meta.max) }}
{{- else }}
{{- $_ := set $scorer "place" "session" }}
{{- end }}
{{- end }}
{{- $store := dict "kind" "local" "path" "/var/lib/tagae" }}
{{- if eq .Values.store.kind "redis" }}
{{- $url := .Values.redis.url | default (printf "redis://%s-redis:6379/1" .Release.Name) }}
{{- $store = dict "kind" "redis" "url" $url "password_file" "/run/secrets/redis/password" "key_prefix" .Values.redis.prefix }}
{{- end }}
{{- $settings := dict "scorer" $scorer "serve" $serve "store" $store }}
{{- if eq .Values.kind "rayservice" }}
{{- $_ := set $settings "collector" (dict "replicas" (int .Values.replicas.collector)) }}
{{- end }}
{{- with .Values.weights.sha256 }}{{ $_ := set $settings "model" (dict "weights" (include "tagae.weightsFile" .)) }}{{ end }}
{{- $meshes := dict }}
{{- range $mesh, $one := .Values.weights.meshes }}
{{- $_ := set $meshes $mesh (dict "weights" (include "tagae.weightsFile" $one.sha256)) }}
{{- end }}
{{- if $meshes }}{{ $_ := set $settings "meshes" $meshes }}{{ end }}
{{- mustMergeOverwrite $settings (deepCopy .Values.settings) | toYaml }}
{{- end }}

{{- /* Groups of settings that the gates read. They run in the proxies of all pods, which do not see the Serve config. */ -}}
{{- define "tagae.gateGroups" -}}
serve limits logs traces
{{- end }}

{{- /* A group of settings as an environment variable, JSON. Of a dict: group, values. */ -}}
{{- define "tagae.variable" -}}
- name: TAGAE_{{ upper .group }}
  value: {{ toJson .values | replace "'" "''" | squote }}
{{- end }}

{{- define "tagae.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "tagae.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* Where pods run. Of a dict: root, place (values with nodeSelector and tolerations), component, perCluster. */ -}}
{{- define "tagae.placement" -}}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .place.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .place.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .perCluster }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: {{ $.root.Values.spread }}
    labelSelector:
      matchLabels:
        {{- include "tagae.labels" $.root | nindent 8 }}
        app.kubernetes.io/component: {{ $.component }}
    matchLabelKeys: [ray.io/cluster]  # during an upgrade, each of the two clusters by itself
  {{- end }}
{{- end }}
{{- end }}

{{- define "tagae.mounts" -}}
- {name: tmp, mountPath: /tmp}  # Ray's sockets and logs are in /tmp/ray
- {name: home, mountPath: /home/ray}
- {name: tokens, mountPath: /etc/tagae, readOnly: true}
- {name: secrets, mountPath: /run/secrets/tagae, readOnly: true}
{{- if eq .Values.store.kind "redis" }}
- {name: redis, mountPath: /run/secrets/redis, readOnly: true}
{{- end }}
{{- end }}

{{- define "tagae.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 4Gi}
- name: home
  emptyDir: {sizeLimit: 256Mi}
- name: tokens
  secret: {secretName: {{ .Values.tokens.secret }}, defaultMode: 0440}
- name: secrets
  secret: {secretName: {{ .Values.secrets.name }}, defaultMode: 0440, optional: true}
{{- if eq .Values.store.kind "redis" }}
- name: redis
  secret:
    secretName: {{ .Values.redis.password.secret }}
    defaultMode: 0440
    items: [{key: {{ .Values.redis.password.key }}, path: password}]
{{- end }}
{{- end }}

{{- /* Where weights are in the pods, by their digest. */ -}}
{{- define "tagae.weightsFile" -}}
/var/lib/tagae-weights/{{ . }}.safetensors
{{- end }}

{{- /* Where weights come from, by their digest. Meshes with equal weights share a file. */ -}}
{{- define "tagae.weightsSources" -}}
{{- $sources := dict }}
{{- range .Values.weights.meshes }}{{ $_ := set $sources .sha256 . }}{{ end }}
{{- with .Values.weights.sha256 }}{{ $_ := set $sources . (omit $.Values.weights "meshes") }}{{ end }}
{{- if $sources }}{{ toYaml $sources }}{{ end }}
{{- end }}

{{- define "tagae.weightsMounts" -}}
{{- if include "tagae.weightsSources" . }}
- {name: weights, mountPath: /var/lib/tagae-weights, readOnly: true}
{{- end }}
{{- end }}

{{- define "tagae.weightsVolumes" -}}
{{- with include "tagae.weightsSources" . }}
- name: weights
  emptyDir: {sizeLimit: 256Mi}
{{- range $digest, $one := fromYaml . }}
{{- with dig "claim" "name" "" $one }}
- name: claim-{{ trunc 12 $digest }}
  persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Downloads or copies the weights, and checks them. A pod with other weights does not start. Of a dict: root, image. */ -}}
{{- define "tagae.weights" -}}
{{- with include "tagae.weightsSources" .root }}
initContainers:
{{- range $digest, $one := fromYaml . }}
{{- $claim := dig "claim" "name" "" $one }}
{{- $secret := dig "urlSecret" "name" "" $one }}
{{- $source := $one.url }}
{{- if $claim }}{{ $source = printf "/claim/%s" (dig "claim" "file" "tagae.safetensors" $one) }}{{ end }}
{{- if $secret }}{{ $source = "$(WEIGHTS_URL)" }}{{ end }}
  - name: weights-{{ trunc 12 $digest }}
    image: {{ $.image }}
    imagePullPolicy: {{ $.root.Values.images.pullPolicy }}
    command: [tagae, models, fetch, {{ $source | quote }}, {{ include "tagae.weightsFile" $digest }}, --sha256, {{ $digest | quote }}]
    {{- with $secret }}
    env:
      - name: WEIGHTS_URL
        valueFrom:
          secretKeyRef: {name: {{ . }}, key: {{ dig "urlSecret" "key" "url" $one }}}
    {{- end }}
    securityContext:
      {{- include "tagae.securityContext" $.root | nindent 6 }}
    resources:
      requests: {cpu: 100m, memory: 1Gi}
      limits: {cpu: "1", memory: 1Gi}
    volumeMounts:
      - {name: weights, mountPath: /var/lib/tagae-weights}
      - {name: tmp, mountPath: /tmp}
      {{- if $claim }}
      - {name: claim-{{ trunc 12 $digest }}, mountPath: /claim, readOnly: true}
      {{- end }}
{{- end }}
{{- end }}
{{- end }}
