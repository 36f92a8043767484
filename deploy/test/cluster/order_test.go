package cluster

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// caller is an application that calls a remote service before it serves and after SIGTERM.
const caller = `apiVersion: apps/v1
kind: Deployment
metadata: {name: caller}
spec:
  selector: {matchLabels: {app: caller}}
  template:
    metadata: {labels: {app: caller}}
    spec:
      containers:
      - name: app
        image: retryproxy-application:test
        imagePullPolicy: Never
        env:
        - {name: CALL_FIRST, value: "http://api/first"}
        - {name: CALL_LAST, value: "http://api/last"}
        securityContext: ` + restricted + `
---
`

// batch is a Job that makes calls.
const batch = `apiVersion: batch/v1
kind: Job
metadata: {name: batch}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: app
        image: retryproxy-application:test
        imagePullPolicy: Never
        args: [job]
        env:
        - {name: API_URL, value: "http://api/work"}
        - {name: CALLS, value: "20"}
        securityContext: ` + restricted + `
---
`

// podStatus is when a Pod's containers began and ended.
type podStatus struct {
	Items []struct {
		Status struct {
			InitContainerStatuses, ContainerStatuses []struct {
				Name         string
				RestartCount int
				State        struct {
					Running    struct{ StartedAt time.Time }
					Terminated struct {
						ExitCode              int
						StartedAt, FinishedAt time.Time
					}
				}
			}
		}
	}
}

func (n *namespace) status(t *testing.T, selector string) (s podStatus) {
	t.Helper()
	if err := json.Unmarshal([]byte(n.kubectl(t, "get", "pods", "-l", selector, "-o", "json")), &s); err != nil || len(s.Items) != 1 {
		t.Fatalf("%d Pods %s: %v", len(s.Items), selector, err)
	}
	return s
}

// An outbound sidecar serves from before the application's first instruction until after its
// last: calls at both ends are answered, and the application is never restarted for one.
func TestTheSidecarIsThereFromFirstToLast(t *testing.T) {
	n := prepare(t)
	n.apply(t, store("api"))
	n.rolledOut(t, "api")
	n.apply(t, injected(t, caller, "--outbound-env", "CALL_FIRST,CALL_LAST"))
	n.ready(t, "caller")
	s := n.status(t, "app=caller").Items[0].Status
	sidecar, app := s.InitContainerStatuses[0], s.ContainerStatuses[0]
	if app.RestartCount > 0 || sidecar.RestartCount > 0 || app.State.Running.StartedAt.Before(sidecar.State.Running.StartedAt) {
		t.Errorf("restarts %d and %d, the sidecar started at %v, the application at %v",
			sidecar.RestartCount, app.RestartCount, sidecar.State.Running.StartedAt, app.State.Running.StartedAt)
	}
	name, _ := n.pod(t, "app=caller")
	logs := make(chan string, 1)
	go func() {
		out, _ := n.try(t, "logs", "--follow", name, "-c", "app")
		logs <- out
	}()
	engine.Await(t, "first line", func() bool {
		return strings.Contains(n.kubectl(t, "logs", name, "-c", "app"), "the remote service answered before the application started")
	})
	n.kubectl(t, "delete", "pod", name)
	if out := <-logs; !strings.Contains(out, `the last call: ""`) {
		t.Errorf("the call after SIGTERM: %s", out)
	}
}

// A Job whose calls go through a sidecar completes, and its sidecar ends after it. Failures of
// the remote service cost it nothing.
func TestAJobCompletesWithASidecar(t *testing.T) {
	n := prepare(t)
	n.apply(t, store("api"))
	n.rolledOut(t, "api")
	_, address := n.pod(t, "app=api")
	post(t, "http://"+address+":3000/fail?times=1")
	n.apply(t, injected(t, batch, "--outbound-env", "API_URL"))
	began := time.Now()
	n.kubectl(t, "wait", "--for=condition=Complete", "--timeout=3m", "job/batch")
	t.Logf("complete after %.1f s", time.Since(began).Seconds())
	s := n.status(t, "job-name=batch").Items[0].Status
	sidecar, app := s.InitContainerStatuses[0].State.Terminated, s.ContainerStatuses[0].State.Terminated
	if app.ExitCode != 0 || sidecar.ExitCode != 0 {
		t.Errorf("exit codes: application %d, sidecar %d", app.ExitCode, sidecar.ExitCode)
	}
	if app.StartedAt.Before(sidecar.StartedAt) || sidecar.FinishedAt.Before(app.FinishedAt) {
		t.Errorf("sidecar from %v to %v, application from %v to %v", sidecar.StartedAt, sidecar.FinishedAt, app.StartedAt, app.FinishedAt)
	}
}
