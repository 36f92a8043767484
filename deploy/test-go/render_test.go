package deploytest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const k8s = "../k8s"

// kustomizations are the directories below deploy/k8s that stand by themselves.
func kustomizations(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(k8s, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "kustomization.yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), "\nkind: Kustomization\n") {
			found = append(found, filepath.Dir(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 8 {
		t.Fatalf("only %d found: %v", len(found), found)
	}
	return found
}

// render is `kubectl kustomize`.
func render(t *testing.T, directory string) string {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		t.Fatalf("%s: %v", directory, err)
	}
	out, err := built.AsYaml()
	if err != nil {
		t.Fatalf("%s: %v", directory, err)
	}
	return string(out)
}

// objects renders and decodes.
func objects(t *testing.T, directory string) []runtime.Object {
	t.Helper()
	return decode(t, directory, render(t, directory))
}

// templateOf is the Pod that the object makes, or nil.
func templateOf(object runtime.Object) *corev1.PodTemplateSpec {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	case *appsv1.ReplicaSet:
		return &o.Spec.Template
	case *batchv1.Job:
		return &o.Spec.Template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template
	case *corev1.Pod:
		return &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
	}
	return nil
}

// find is the object of the kind with the name; the test fails without one.
func find[T runtime.Object](t *testing.T, all []runtime.Object, name string) T {
	t.Helper()
	for _, object := range all {
		if o, ok := object.(T); ok && any(o).(interface{ GetName() string }).GetName() == name {
			return o
		}
	}
	var none T
	t.Fatalf("no %T named %s", none, name)
	return none
}

// all containers of a Pod, the init containers first.
func containers(spec *corev1.PodSpec) []corev1.Container {
	return append(append([]corev1.Container(nil), spec.InitContainers...), spec.Containers...)
}

// isProxy tells our containers by what they run.
func isProxy(c corev1.Container) bool {
	return strings.Contains(c.Image, "/retryproxy:") || strings.Contains(c.Image, "/retryproxy@")
}

// isWebhook tells the webhook's container.
func isWebhook(c corev1.Container) bool { return strings.Contains(c.Image, "/retryproxyctl:") }
