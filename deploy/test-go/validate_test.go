package deploytest

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	admissionregistrationinstall "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	admissionregistrationvalidation "k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsinstall "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	autoscalinginstall "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	autoscalingvalidation "k8s.io/kubernetes/pkg/apis/autoscaling/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchinstall "k8s.io/kubernetes/pkg/apis/batch/install"
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	coreinstall "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	policyinstall "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"sigs.k8s.io/yaml"
)

func init() {
	for _, install := range []func(*runtime.Scheme){
		admissionregistrationinstall.Install, appsinstall.Install, autoscalinginstall.Install, batchinstall.Install, coreinstall.Install, policyinstall.Install,
	} {
		install(legacyscheme.Scheme)
	}
	if err := monitoringv1.AddToScheme(legacyscheme.Scheme); err != nil {
		panic(err)
	}
}

// decode reads documents into the API types. A field that the type does not
// have, or one twice, fails the test.
func decode(t *testing.T, source, documents string) []runtime.Object {
	t.Helper()
	var objects []runtime.Object
	for i, document := range splitDocuments(documents) {
		object, err := decodeOne(document)
		if err != nil {
			t.Fatalf("%s, document %d: %v\n%s", source, i+1, err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

func decodeOne(document string) (runtime.Object, error) {
	var kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
		return nil, err
	}
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return nil, err
	}
	object, err := legacyscheme.Scheme.New(gv.WithKind(kind.Kind))
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
		return nil, err
	}
	return object, nil
}

// splitDocuments splits at lines of ---; what holds nothing but comments is no
// document.
func splitDocuments(documents string) []string {
	var kept []string
	for _, document := range strings.Split("\n"+documents, "\n---") {
		content := false
		for _, line := range strings.Split(document, "\n") {
			line = strings.TrimSpace(line)
			content = content || line != "" && !strings.HasPrefix(line, "#")
		}
		if content {
			kept = append(kept, document)
		}
	}
	return kept
}

// validate gives the object the API server's defaults and fails the test when
// its validation refuses it.
func validate(t *testing.T, source string, object runtime.Object) {
	t.Helper()
	problems, err := problemsOf(object)
	if err != nil {
		t.Errorf("%s: %v", source, err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s: %v", source, nameOf(object), problem)
	}
}

// problemsOf is what the API server would refuse. An error is a kind that it
// is not asked about.
func problemsOf(object runtime.Object) (field.ErrorList, error) {
	if object.GetObjectKind().GroupVersionKind().Group == "monitoring.coreos.com" {
		return nil, nil // validated by its CRD and the operator; decoded strictly here
	}
	object = object.DeepCopyObject()
	legacyscheme.Scheme.Default(object)
	internal := schema.GroupVersion{Group: object.GetObjectKind().GroupVersionKind().Group, Version: runtime.APIVersionInternal}
	converted, err := legacyscheme.Scheme.ConvertToVersion(object, internal)
	if err != nil {
		return nil, err
	}
	withNamespace(converted)
	return validateInternal(converted)
}

// withNamespace is what the API server does with the namespace of the request.
func withNamespace(object runtime.Object) {
	switch object.(type) {
	case *admissionregistration.MutatingWebhookConfiguration, *core.Namespace:
		return // they have none
	}
	if o, ok := object.(interface {
		GetNamespace() string
		SetNamespace(string)
	}); ok && o.GetNamespace() == "" {
		o.SetNamespace("default")
	}
}

func validateInternal(object runtime.Object) (field.ErrorList, error) {
	template := func(t *core.PodTemplateSpec) corevalidation.PodValidationOptions {
		return podutil.GetValidationOptionsFromPodTemplate(t, nil)
	}
	switch o := object.(type) {
	case *apps.Deployment:
		return appsvalidation.ValidateDeployment(o, template(&o.Spec.Template)), nil
	case *apps.StatefulSet:
		return appsvalidation.ValidateStatefulSet(o, appsvalidation.StatefulSetValidationOptions{}, template(&o.Spec.Template)), nil
	case *apps.DaemonSet:
		return appsvalidation.ValidateDaemonSet(o, template(&o.Spec.Template)), nil
	case *apps.ReplicaSet:
		return appsvalidation.ValidateReplicaSet(o, template(&o.Spec.Template)), nil
	case *batch.Job:
		return batchvalidation.ValidateJobCreate(withSelector(o), batchvalidation.JobValidationOptions{PodValidationOptions: template(&o.Spec.Template)}), nil
	case *batch.CronJob:
		return batchvalidation.ValidateCronJobCreate(o, template(&o.Spec.JobTemplate.Spec.Template)), nil
	case *core.Pod:
		return corevalidation.ValidatePodCreate(o, podutil.GetValidationOptionsFromPodSpecAndMeta(&o.Spec, nil, &o.ObjectMeta, nil)), nil
	case *core.Service:
		return corevalidation.ValidateServiceCreate(o), nil
	case *core.Namespace:
		return corevalidation.ValidateNamespace(o), nil
	case *core.ConfigMap:
		return corevalidation.ValidateConfigMap(o), nil
	case *core.ServiceAccount:
		return corevalidation.ValidateServiceAccount(o), nil
	case *policy.PodDisruptionBudget:
		return policyvalidation.ValidatePodDisruptionBudget(o, policyvalidation.PodDisruptionBudgetValidationOptions{}), nil
	case *autoscaling.HorizontalPodAutoscaler:
		return autoscalingvalidation.ValidateHorizontalPodAutoscaler(o, autoscalingvalidation.HorizontalPodAutoscalerSpecValidationOptions{}), nil
	case *admissionregistration.MutatingWebhookConfiguration:
		return admissionregistrationvalidation.ValidateMutatingWebhookConfiguration(o), nil
	}
	return nil, fmt.Errorf("no validation is known here for %T", object)
}

// withSelector is what the API server generates for a Job before it validates
// it.
func withSelector(job *batch.Job) *batch.Job {
	labels := map[string]string{batch.JobNameLabel: job.Name}
	job.Spec.ManualSelector = new(true)
	job.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	if job.Spec.Template.Labels == nil {
		job.Spec.Template.Labels = map[string]string{}
	}
	maps.Copy(job.Spec.Template.Labels, labels)
	return job
}

func nameOf(object runtime.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if o, ok := object.(interface{ GetName() string }); ok {
		return kind + " " + o.GetName()
	}
	return kind
}
