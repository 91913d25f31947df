package agent_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// killed is a program that can be killed: nothing that it does afterwards is stored or sent.
type killed struct {
	*rig
	dead atomic.Bool
	end  context.CancelFunc
}

// kill ends the program.
func (k *killed) kill() error {
	k.dead.Store(true)
	k.end()
	return errPower
}

// lives starts the program until it is not killed, and returns how often that was.
func (k *killed) lives(t *testing.T) (starts int) {
	died := func() error {
		if k.dead.Load() {
			return errPower
		}
		return nil
	}
	k.store.fail = died
	k.service.report = func(*agent.Report) error { return died() }
	for again := true; again; starts++ {
		require.Less(t, starts, 30, "the program is killed for ever")
		k.dead.Store(false)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		k.end = cancel
		a, err := agent.New(&k.options)
		require.NoError(t, err)
		err = a.Run(ctx)
		cancel()
		again = k.dead.Load() || errors.Is(err, agent.ErrRestart)
	}
	return starts
}

// calls returns how often a method of the handler was called.
func (k *killed) calls(call string) (n int) {
	for _, c := range k.device.calls {
		if c == call {
			n++
		}
	}
	return n
}

func inKilled(t *testing.T, f func(t *testing.T, k *killed)) {
	inRig(t, func(t *testing.T, r *rig) {
		r.device.installed = []string{"old 1", "old 2", ""}
		r.offered("wf-1", "1.1", "image 1", "image 2")
		f(t, &killed{rig: r})
	})
}

// A call that kills the program is repeated by its next starts, but not for ever.
func TestACallThatKillsTheProgramFailsTheUpdate(t *testing.T) {
	for _, fatal := range []string{"installed 0", "download 0", "install 1", "apply 1"} {
		t.Run(fatal, func(t *testing.T) {
			inKilled(t, func(t *testing.T, k *killed) {
				k.device.fail = func(call string) error {
					if call == fatal {
						return k.kill()
					}
					return nil
				}
				k.lives(t)
				require.Equal(t, 3, k.calls(fatal))
				f := k.final()
				require.Equal(t, agent.OutcomeFailed, f.Result.Outcome)
				require.Contains(t, f.Result.Details, "the program ended 3 times in a row")
				require.Equal(t, []string{"old 1", "old 2", ""}, k.device.installed)
			})
		})
	}
	t.Run("installed 1, which is right", func(t *testing.T) {
		inKilled(t, func(t *testing.T, k *killed) {
			k.device.installed[1] = "image 2"
			k.device.fail = func(call string) error {
				if call == "installed 1" {
					return k.kill()
				}
				return nil
			}
			k.lives(t)
			require.Equal(t, 3, k.calls("installed 1"))
			require.Equal(t, agent.OutcomeFailed, k.final().Result.Outcome)
			require.Equal(t, []string{"old 1", "image 2", ""}, k.device.installed)
		})
	})
	t.Run("cancel 1", func(t *testing.T) {
		inKilled(t, func(t *testing.T, k *killed) {
			k.device.fail = func(call string) error {
				switch call {
				case "apply 1":
					return errors.New("it fails")
				case "cancel 1":
					return k.kill()
				}
				return nil
			}
			k.lives(t)
			require.Equal(t, 3, k.calls("cancel 1"))
			require.Equal(t, 1, k.calls("cancel 0"), "the other step is undone")
			f := k.final()
			require.Equal(t, agent.OutcomeFailed, f.Result.Outcome)
			require.Contains(t, f.Result.Details, "it fails")
			require.Len(t, f.Result.Extended, 2)
		})
	})
	t.Run("installed after apply", func(t *testing.T) {
		inKilled(t, func(t *testing.T, k *killed) {
			k.device.fail = func(call string) error {
				if call == "apply 1" || call == "installed 1" && k.calls("apply 1") > 0 {
					return k.kill()
				}
				return nil
			}
			k.lives(t)
			require.Contains(t, k.final().Result.Details, "the program ended 3 times in a row")
		})
	})
	t.Run("verify", func(t *testing.T) {
		inKilled(t, func(t *testing.T, k *killed) {
			verified := 0
			k.options.Verify = func([]byte, string) error { verified++; return k.kill() }
			k.lives(t)
			require.LessOrEqual(t, verified, 4)
			require.Contains(t, k.final().Result.Details, "the program ended 3 times in a row")
		})
	})
}

// Starts that bring an update further do not count against it.
func TestAnUpdateThatGoesOnOutlivesAnyNumberOfKills(t *testing.T) {
	succeeds := func(t *testing.T, k *killed, atLeast int) {
		t.Helper()
		require.GreaterOrEqual(t, k.lives(t), atLeast)
		require.Equal(t, agent.OutcomeSucceeded, k.final().Result.Outcome, k.final().Result.Details)
	}
	t.Run("each phase twice", func(t *testing.T) {
		inKilled(t, func(t *testing.T, k *killed) {
			before := map[string]int{}
			k.device.fail = func(call string) error {
				if before[call]++; before[call] < 3 {
					return k.kill()
				}
				return nil
			}
			succeeds(t, k, 15)
		})
	})
	t.Run("a download that comes further", func(t *testing.T) {
		inKilled(t, func(t *testing.T, k *killed) {
			k.files.body = func(_ int, r io.Reader) io.ReadCloser { // 4 bytes in each life
				return io.NopCloser(io.MultiReader(io.LimitReader(r, 4), readerFunc(func([]byte) (int, error) {
					time.Sleep(time.Minute) // what was read is stored
					return 0, k.kill()
				})))
			}
			k.offered("wf-1", "1.1", "an image of 4 times 9 bytes, or more", "another image")
			k.device.chunk = 4
			succeeds(t, k, 10)
		})
	})
	t.Run("without a network", func(t *testing.T) {
		inKilled(t, func(t *testing.T, k *killed) {
			k.files.fail = func(n int) error {
				switch {
				case n > 40:
					return nil
				case n%4 == 0: // the power fails while the device waits for a network
					return k.kill()
				}
				return fault(transport.Network)
			}
			succeeds(t, k, 10)
		})
	})
	t.Run("on trial", func(t *testing.T) { // its starts are counted elsewhere
		inKilled(t, func(t *testing.T, k *killed) {
			k.device.next["apply 1"] = agent.NextRestart
			k.device.fail = func(call string) error {
				if call == "installed 1 restarted" && k.calls(call) < 10 {
					return k.kill()
				}
				return nil
			}
			succeeds(t, k, 10)
		})
	})
	t.Run("ended in order", func(t *testing.T) {
		inKilled(t, func(t *testing.T, k *killed) {
			n := 0
			k.device.fail = func(call string) error {
				if call == "install 0" {
					if n++; n <= 12 {
						k.end()
						return context.Canceled
					}
				}
				return nil
			}
			for range 12 {
				require.Equal(t, 1, k.lives(t))
			}
			succeeds(t, k, 1)
		})
	})
	t.Run("with a Store that fails", func(t *testing.T) { // the program goes on, and calls Run again
		inKilled(t, func(t *testing.T, k *killed) {
			a, err := agent.New(&k.options)
			require.NoError(t, err)
			fails := errors.New("no flash at https://nas/?sig=abc1")
			k.device.fail = func(call string) error {
				if call == "install 0" {
					k.store.fail = func() error { return fails }
				}
				return nil
			}
			for range 6 {
				err = a.Run(t.Context())
				require.ErrorIs(t, err, fails)
				require.NotContains(t, err.Error(), "abc1")
			}
			unread := k.options
			unread.Store = unreadable{err: fails}
			_, err = agent.New(&unread)
			require.ErrorIs(t, err, fails)
			require.NotContains(t, err.Error(), "abc1")
			k.store.fail, k.device.fail = nil, nil
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
			defer cancel()
			require.ErrorIs(t, a.Run(ctx), context.DeadlineExceeded)
			require.Equal(t, agent.OutcomeSucceeded, k.final().Result.Outcome, k.final().Result.Details)
		})
	})
}

// The power fails before the end of Apply is stored.
func TestAnUpdateThatIsAppliedInTheLastStartSucceeds(t *testing.T) {
	for name, next := range map[string]agent.Next{"Install": agent.NextContinue, "a restart": agent.NextRestart} {
		t.Run("after "+name, func(t *testing.T) {
			inKilled(t, func(t *testing.T, k *killed) {
				k.device.next["install 1"] = next
				applies := 0
				k.device.fail = func(call string) error {
					if strings.HasPrefix(call, "apply 1") {
						applies++
						if err := k.kill(); applies < 3 {
							return err
						}
					}
					return nil
				}
				require.GreaterOrEqual(t, k.lives(t), 4)
				require.Equal(t, 3, applies)
				require.Equal(t, agent.OutcomeSucceeded, k.final().Result.Outcome, k.final().Result.Details)
			})
		})
	}
}

type unreadable struct {
	agent.Store
	err error
}

func (s unreadable) Load() ([]byte, error) { return nil, s.err }

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
