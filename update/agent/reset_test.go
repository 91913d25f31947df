package agent_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/update/agent"
)

var errPower = errors.New("the power fails")

// cutStore is a Store at whose n-th Save the power fails, before or after the write.
type cutStore struct {
	memory
	at    int
	after bool
}

func (s *cutStore) Save(state []byte) error {
	s.at--
	if s.at > 0 || s.at < -100 {
		return s.memory.Save(state)
	}
	if s.at == 0 && s.after {
		_ = s.memory.Save(state)
	}
	return errPower
}

// An update ends as it does without a reset, whichever write of the state the power fails at.
func TestAResetAtAnyWriteChangesNoResult(t *testing.T) {
	for name, fails := range map[string]string{
		"it works": "", "its second step is not installed": "install 1", "it does not come up": "installed 1 restarted",
		"its second step is not downloaded": "download 1",
	} {
		live := func(cut int, after bool) (r *rig, saves int) {
			synctest.Test(t, func(t *testing.T) {
				r = newRig(t)
				store := &cutStore{at: cut, after: after}
				r.options.Store = store
				r.device.installed = []string{"old 1", "old 2", ""}
				for _, call := range []string{"install 0", "apply 0", "apply 1", "cancel 0", "cancel 1"} {
					r.device.next[call] = agent.NextRestart
				}
				r.device.fail = func(call string) error {
					if call == fails || fails == "installed 1 restarted" && call == "installed 1" &&
						r.device.installed[1] == "image 2" {
						return errors.New("it fails")
					}
					return nil
				}
				r.offered("wf-1", "1.1", "image 1", "image 2")
				for range 20 {
					err := r.run(3 * time.Hour)
					if store.at <= 0 {
						store.at = -1000 // the power is back
					}
					if !errors.Is(err, agent.ErrRestart) && !errors.Is(err, errPower) {
						break
					}
				}
				saves = store.saves
			})
			return r, saves
		}
		t.Run(name, func(t *testing.T) {
			want, saves := live(1<<30, false)
			require.Greater(t, saves, 5)
			expected := want.service.finals()[0]
			for cut := range saves {
				for _, after := range []bool{false, true} {
					r, _ := live(cut+1, after)
					at := fmt.Sprint("write ", cut+1, ", after it: ", after)
					finals := r.service.finals()
					require.NotEmpty(t, finals, at)
					for _, f := range finals { // one that was acknowledged may come again
						require.Equal(t, finals[0], f, at)
					}
					require.Equal(t, expected.Result.Outcome, finals[0].Result.Outcome, at)
					require.Equal(t, outcomes(expected), outcomes(finals[0]), at)
					require.Equal(t, expected.Installed, finals[0].Installed, at)
					require.Equal(t, want.device.installed, r.device.installed, at)
				}
			}
		})
	}
}
