package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// mute is a Service that returns from Report only when ctx ends.
type mute struct{ *service }

func (m mute) Report(ctx context.Context, _ *agent.Report) error {
	<-ctx.Done()
	return ctx.Err()
}

// An image that does not reach the network has to be undone without it.
func TestAServiceThatNeverAnswersDoesNotKeepAnUpdateFromBeingUndone(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.options.Service = mute{r.service}
		r.offered("wf-1", "1.1", "image")
		r.device.installed[0] = "old"
		r.device.next["apply 0"] = agent.NextRestart
		r.device.fail = func(call string) error {
			if call == "installed 0 restarted" {
				return errors.New("no network")
			}
			return nil
		}
		require.Equal(t, 1, r.runs(30*time.Minute))
		require.Equal(t, "cancel 0", r.device.calls[len(r.device.calls)-1])
		require.Equal(t, "old", r.device.installed[0])
	})
}

func TestARefusedCheckIsNotRepeatedBeforeTheServiceWantsIt(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.options.Interval = time.Minute
		r.service.check = func(int) error {
			return &transport.Error{Kind: transport.Invalid, RetryAfter: 20 * time.Minute, Err: errors.New("refused")}
		}
		require.Zero(t, r.runs(19*time.Minute))
		require.Len(t, r.service.queries, 1)
	})
}

func TestTheServicesPaceHoldsForAProgramThatAsks(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.service.answer.RetryAfter = 20 * time.Minute
		a, err := agent.New(&r.options)
		require.NoError(t, err)
		for range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
			time.AfterFunc(3*time.Minute, a.Check)
			require.ErrorIs(t, a.Run(ctx), context.DeadlineExceeded)
			cancel()
		}
		require.Len(t, r.service.queries, 2, "in 24 minutes")
	})
}

func TestACancelDoesNotUndoAnUpdateThatIsDoneMeanwhile(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.options.Interval = time.Minute
		r.offered("wf-1", "1.1", "image")
		r.device.fail = func(call string) error {
			if call == "apply 0" {
				r.service.mu.Lock()
				r.service.answer.Cancel = "wf-1"
				r.service.mu.Unlock()
				time.Sleep(5 * time.Minute) // Apply cannot be interrupted
			}
			return nil
		}
		require.Zero(t, r.runs(time.Hour))
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
		require.Equal(t, "image", r.device.installed[0])
		require.NotContains(t, r.device.calls, "cancel 0")
	})
}

// The Store may have been replaced while the service showed the update as in progress.
func TestACancelOfAnUnknownWorkflowIsConfirmed(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.service.answer.Cancel = "wf-lost"
		require.Zero(t, r.runs(5*time.Hour))
		f := r.final()
		require.Equal(t, "wf-lost", f.WorkflowID)
		require.Equal(t, agent.OutcomeCanceled, f.Result.Outcome)
	})
}

// Such an id could not be reported: every later check of the device would be refused.
func TestAManifestWhoseIDTheServiceDoesNotTakeIsRefused(t *testing.T) {
	good := string(newRig(t).offer("wf-1", "1.1", "image").Manifest)
	for _, id := range []agent.UpdateID{
		{Provider: "Contoso Ltd", Name: "Tractor", Version: "1.1"}, {Provider: "Contoso", Name: `Tra"ctor`, Version: "1.1"},
		{Provider: strings.Repeat("p", 65), Name: "Tractor", Version: "1.1"},
		{Provider: "Contoso", Name: "Tractor", Version: "1"}, {Provider: "Contoso", Name: "Tractor", Version: "1.0-beta"},
		{Provider: "Contoso", Name: "Tractor", Version: "1.2.3.4.5"}, {Provider: "Contoso", Name: "Tractor", Version: "1..2"},
	} {
		text := strings.Replace(good, `{"provider":"Contoso","name":"Tractor","version":"1.1"}`,
			fmt.Sprintf(`{"provider":%q,"name":%q,"version":%q}`, id.Provider, id.Name, id.Version), 1)
		_, err := agent.ParseManifest([]byte(text))
		require.ErrorIs(t, err, transport.Invalid, id)
	}
}
