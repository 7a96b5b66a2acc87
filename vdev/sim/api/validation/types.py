"""The fields that objects have, and of which type each is. Another field is one line more.

`s` is a text, `i` and `w` are whole numbers of 64 and of 32 bits, `b` a truth value, `q` a quantity, `t` a time, `m`
one with microseconds, `x` anything. `[s]` is a list, `{s}` a map. Another word is a structure below, and what is of
type `?` is not looked into.
"""

from collections.abc import Mapping

Fields = Mapping[str, str]


def _fields(text: str) -> Fields:
    """`a,b:s c:[i]` as a map."""
    return {
        name: kind for part in text.split() for names, _, kind in [part.rpartition(":")] for name in names.split(",")
    }


_METADATA = (
    "name,generateName,namespace,selfLink,uid,resourceVersion:s generation,deletionGracePeriodSeconds:i "
    "creationTimestamp,deletionTimestamp:t labels,annotations:{s} finalizers:[s] ownerReferences:[Owner] "
    "managedFields:[Managed]"
)
_REQUEST = (
    "deviceClassName,allocationMode:s count:i selectors:[Selector] tolerations:[DeviceToleration] "
    "capacity:CapacityAsked"
)
_REFERENCE = "apiVersion,kind,name,namespace,uid,resourceVersion,fieldPath:s"
_CONTAINER = (
    "name,image,workingDir,terminationMessagePath,terminationMessagePolicy,imagePullPolicy,restartPolicy:s "
    "command,args:[s]  "
    "stdin,stdinOnce,tty:b env:[EnvVar] envFrom,resizePolicy,restartPolicyRules,volumeDevices:[?] "
    "ports:[ContainerPort] resources:Resources  "
    "volumeMounts:[VolumeMount] livenessProbe,readinessProbe,startupProbe,lifecycle,securityContext:?"
)

STRUCTURES: Mapping[str, Fields] = {
    name: _fields(text)
    for name, text in {
        "Metadata": _METADATA,
        "Owner": "apiVersion,kind,name,uid:s controller,blockOwnerDeletion:b",
        "Managed": "manager,operation,apiVersion,fieldsType,subresource:s time:t fieldsV1:?",
        "Reference": _REFERENCE,
        # --- small kinds
        "ConfigMap": "data,binaryData:{s} immutable:b",
        "Namespace": "spec:NamespaceSpec status:NamespaceStatus",
        "NamespaceSpec": "finalizers:[s]",
        "NamespaceStatus": "phase:s conditions:[?]",
        "Lease": "spec:LeaseSpec",
        "LeaseSpec": "holderIdentity,preferredHolder,strategy:s leaseDurationSeconds,leaseTransitions:w "
        "acquireTime,renewTime:m",
        "Event": "reason,message,type,action,reportingComponent,reportingInstance:s "
        "involvedObject,related:Reference count:w  "
        "source:EventSource firstTimestamp,lastTimestamp:t eventTime:m series:EventSeries",
        "EventSource": "component,host:s",
        "EventSeries": "count:w lastObservedTime:m",
        # --- DRA
        "ResourceSlice": "spec:SliceSpec",
        "SliceSpec": "driver,nodeName:s pool:Pool nodeSelector:NodeSelector allNodes,perDeviceNodeSelection:b "
        "devices:[Device]  "
        "sharedCounters:[CounterSet]",
        "Pool": "name:s generation,resourceSliceCount:i",
        "Device": "name,nodeName:s attributes:{Attribute} capacity:{Capacity} consumesCounters:[CounterUse] "
        "nodeSelector:NodeSelector  "
        "allNodes,bindsToNode,allowMultipleAllocations:b taints:[DeviceTaint] "
        "bindingConditions,bindingFailureConditions:[s]",
        "Attribute": "int:i bool:b string,version:s",
        "Capacity": "value:q requestPolicy:RequestPolicy",
        "RequestPolicy": "default:q validValues:[q] validRange:ValidRange",
        "ValidRange": "min,max,step:q",
        "CounterUse": "counterSet:s counters:{Counter}",
        "CounterSet": "name:s counters:{Counter}",
        "Counter": "value:q",
        "DeviceTaint": "key,value,effect:s timeAdded:t",
        "DeviceClass": "spec:ClassSpec",
        "ClassSpec": "selectors:[Selector] config:[Configuration] extendedResourceName:s",
        "Selector": "cel:Expression",
        "Expression": "expression:s",
        "Configuration": "opaque:Opaque",
        "Opaque": "driver:s parameters:x",
        "ResourceClaim": "spec:ClaimSpec status:ClaimStatus",
        "ResourceClaimTemplate": "spec:TemplateSpec",
        "TemplateSpec": "metadata:Metadata spec:ClaimSpec",
        "ClaimSpec": "devices:DeviceClaim",
        "DeviceClaim": "requests:[DeviceRequest] constraints:[Constraint] config:[ClaimConfiguration]",
        "DeviceRequest": "name:s exactly:ExactRequest firstAvailable:[SubRequest]",
        "ExactRequest": f"adminAccess:b {_REQUEST}",
        "SubRequest": f"name:s {_REQUEST}",
        "CapacityAsked": "requests:{q}",
        "DeviceToleration": "key,operator,value,effect:s tolerationSeconds:i",
        "Constraint": "requests:[s] matchAttribute,distinctAttribute:s",
        "ClaimConfiguration": "requests:[s] opaque:Opaque",
        "ClaimStatus": "allocation:Allocation devices:[AllocatedDevice] reservedFor:[Consumer]",
        "Allocation": "devices:AllocationResult nodeSelector:NodeSelector allocationTimestamp:t",
        "AllocationResult": "results:[DeviceResult] config:[AllocatedConfiguration]",
        "AllocatedConfiguration": "source:s requests:[s] opaque:Opaque",
        "DeviceResult": "request,driver,pool,device,shareID:s adminAccess:b tolerations:[DeviceToleration] "
        "consumedCapacity:{q}  "
        "bindingConditions,bindingFailureConditions:[s]",
        "AllocatedDevice": "driver,pool,device,shareID:s conditions:[Condition] data:x networkData:NetworkData",
        "NetworkData": "interfaceName,hardwareAddress:s ips:[s]",
        "Condition": "type,status,reason,message:s observedGeneration:i lastTransitionTime:t",
        "Consumer": "apiGroup,resource,name,uid:s",
        # --- Nodes
        "Node": "spec:NodeSpec status:NodeStatus",
        "NodeSpec": "podCIDR,providerID,externalID:s podCIDRs:[s] unschedulable:b taints:[Taint] configSource:?",
        "Taint": "key,value,effect:s timeAdded:t",
        "NodeStatus": "capacity,allocatable:{q} phase:s conditions:[NodeCondition] addresses:[Address] "
        "daemonEndpoints,nodeInfo,config,features:?  "
        "images,volumesAttached,runtimeHandlers:[?] volumesInUse,declaredFeatures:[s]",
        "NodeCondition": "type,status,reason,message:s lastHeartbeatTime,lastTransitionTime:t",
        "Address": "type,address:s",
        "NodeSelector": "nodeSelectorTerms:[NodeTerm]",
        "NodeTerm": "matchExpressions,matchFields:[NodeRequirement]",
        "NodeRequirement": "key,operator:s values:[s]",
        # --- Pods
        "Pod": "spec:PodSpec status:PodStatus",
        "PodSpec": ""
        "restartPolicy,dnsPolicy,serviceAccountName,serviceAccount,nodeName,hostname,subdomain,schedulerName,priorityClassName,"
        "runtimeClassName,preemptionPolicy,hostnameOverride:s "
        "terminationGracePeriodSeconds,activeDeadlineSeconds:i priority:w  "
        ""
        "automountServiceAccountToken,hostNetwork,hostPID,hostIPC,shareProcessNamespace,enableServiceLinks:b "
        "setHostnameAsFQDN,hostUsers:b "
        " "
        "nodeSelector:{s} containers,initContainers:[Container] ephemeralContainers,volumes:[?] "
        "imagePullSecrets,hostAliases,readinessGates:[?]  "
        "tolerations:[Toleration] topologySpreadConstraints:[Spread] schedulingGates:[Gate] "
        "resourceClaims:[PodClaim] overhead:{q}  "
        "affinity:Affinity resources:Resources securityContext,dnsConfig,os,schedulingGroup,workloadRef:?",
        "Container": _CONTAINER,
        "EnvVar": "name,value:s valueFrom:?",
        "ContainerPort": "name,protocol,hostIP:s containerPort,hostPort:w",
        "VolumeMount": "name,mountPath,subPath,subPathExpr,mountPropagation,recursiveReadOnly:s readOnly:b",
        "Resources": "limits,requests:{q} claims:[ContainerClaim]",
        "ContainerClaim": "name,request:s",
        "PodClaim": "name,resourceClaimName,resourceClaimTemplateName:s",
        "Toleration": "key,operator,value,effect:s tolerationSeconds:i",
        "Gate": "name:s",
        "Spread": "maxSkew,minDomains:w topologyKey,whenUnsatisfiable,nodeAffinityPolicy,nodeTaintsPolicy:s "
        "labelSelector:? matchLabelKeys:[s]",
        "Affinity": "nodeAffinity:NodeAffinity podAffinity,podAntiAffinity:?",
        "NodeAffinity": "requiredDuringSchedulingIgnoredDuringExecution:NodeSelector "
        "preferredDuringSchedulingIgnoredDuringExecution:[Preferred]",
        "Preferred": "weight:w preference:NodeTerm",
        "PodStatus": "phase,message,reason,nominatedNodeName,hostIP,podIP,qosClass,resize:s observedGeneration:i "
        "startTime:t  "
        "conditions:[PodCondition] "
        "hostIPs,podIPs,initContainerStatuses,containerStatuses,ephemeralContainerStatuses:[?]  "
        "resourceClaimStatuses:[ClaimOfPod] extendedResourceClaimStatus,resources:? allocatedResources:{q} "
        "nodeAllocatableResourceClaimStatuses:[?]",
        "PodCondition": "type,status,reason,message:s observedGeneration:i lastProbeTime,lastTransitionTime:t",
        "ClaimOfPod": "name,resourceClaimName:s",
    }.items()
}
