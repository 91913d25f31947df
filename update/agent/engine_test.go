package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/update/agent"
)

func TestWhatIsInstalledIsSkipped(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.device.installed[0] = "first"
		r.offered("wf-1", "1.0", "first", "second")
		r.runs(time.Hour)
		require.Equal(t, []string{"SKIPPED", "SUCCEEDED"}, outcomes(r.final()))
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
		require.NotContains(t, r.device.calls, "download 0")

		r.offered("wf-2", "1.0", "first", "second")
		r.runs(time.Hour)
		f := r.service.finals()[1]
		require.Equal(t, []string{"SKIPPED", "SKIPPED"}, outcomes(f))
		require.Equal(t, agent.OutcomeSkipped, f.Result.Outcome)
		require.Equal(t, agent.CodeSuccess, f.Result.Code)
		require.Len(t, r.files.fetched, 1)
	})
}

func TestAWorkflowIsDoneOnce(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.offered("wf-1", "1.0", "image")
		r.runs(10 * time.Hour)
		r.runs(10 * time.Hour)
		require.Len(t, r.service.finals(), 1, "the service keeps offering it")
		require.Len(t, r.files.fetched, 1)
	})
}

func TestAnUpdateGoesOnAfterTheRestartsOfItsSteps(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.device.next["install 0"], r.device.next["apply 0"] = agent.NextRestart, agent.NextRestart
		r.offered("wf-1", "1.0", "image", "other")
		require.Equal(t, 2, r.runs(time.Hour))
		require.Equal(t, []string{"installed 0", "download 0", "install 0", "apply 0 restarted", "installed 0 restarted",
			"installed 1", "download 1", "install 1", "apply 1"}, r.device.calls)
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
	})
}

// The boot loader, or the power at the wrong time, may have brought the old image back.
func TestAnUpdateThatDoesNotComeUpIsUndone(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.device.installed[1] = "old"
		r.options.Installed = func() agent.UpdateID { return agent.UpdateID{Version: r.device.installed[0]} }
		r.device.next["apply 1"], r.device.next["cancel 0"] = agent.NextRestart, agent.NextRestart
		r.offered("wf-1", "1.0", "first", "second", "third")
		require.ErrorIs(t, r.run(time.Hour), agent.ErrRestart)
		r.device.installed[1] = "old"
		r.device.calls = nil
		require.Equal(t, 1, r.runs(time.Hour), "the rollback restarts the program once")
		require.Equal(t, []string{"installed 1 restarted", "cancel 1", "cancel 0"}, r.device.calls)
		f := r.final()
		require.Equal(t, []string{"SUCCEEDED", "FAILED", "SKIPPED"}, outcomes(f))
		require.Equal(t, agent.OutcomeFailed, f.Result.Outcome)
		require.Equal(t, []uint32{agent.AreaApply.Code(0)}, f.Result.Extended)
		require.Contains(t, f.Result.Details, "did not come up")
		require.Equal(t, agent.UpdateID{}, f.Installed, "that of before the update")
		require.Equal(t, []string{"", "old", ""}, r.device.installed)
	})
}

func TestAFailureIsUndoneInReverseOrderAndReported(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.device.fail = func(call string) error {
			switch call {
			case "install 2":
				return fmt.Errorf("step: %w", &agent.StepError{Code: 0xf0001234, Err: errors.New("no space; token=hunter2")})
			case "cancel 1":
				panic("cannot undo")
			}
			return nil
		}
		r.offered("wf-1", "1.0", "first", "second", "third")
		r.runs(time.Hour)
		f := r.final()
		require.Equal(t, []string{"SUCCEEDED", "SUCCEEDED", "FAILED"}, outcomes(f))
		require.Equal(t, []uint32{0x50001234, agent.AreaRestore.Code(0)}, f.Result.Extended)
		require.Equal(t, agent.OriginAgentExtension, f.Result.Origin)
		require.Equal(t, agent.CodeFailure, f.Result.Code)
		require.Contains(t, f.Result.Details, "no space")
		require.NotContains(t, f.Result.Details, "hunter2")
		calls := r.device.calls
		require.Equal(t, []string{"cancel 2", "cancel 1", "cancel 0"}, calls[len(calls)-3:])
		require.Equal(t, "", r.device.installed[0])
	})
}

// What was installed before the update is not undone because a look at it fails, unless it is on
// trial: the agent that began the trial has lost its state.
func TestAFailureBeforeAStepBeginsDoesNotUndoTheStep(t *testing.T) {
	for name, c := range map[string]struct {
		trial  bool
		before []string // the device
		after  []string
		calls  []string // from the failure on
	}{
		"installed":     {false, []string{"old", "second"}, []string{"old", "second"}, []string{"cancel 0"}},
		"not installed": {false, []string{"old", "old"}, []string{"old", "old"}, []string{"cancel 0"}},
		"on trial":      {true, []string{"old", "second"}, []string{"old", "older"}, []string{"cancel 1", "cancel 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, func(t *testing.T, r *rig) {
				copy(r.device.installed, c.before)
				r.device.backup[1], r.device.trial = "older", c.trial
				r.device.fail = func(call string) error {
					if call == "installed 1" {
						r.device.fail = nil
						return errors.New("too many open files")
					}
					return nil
				}
				r.offered("wf-1", "1.0", "first", "second", "third")
				r.runs(time.Hour)
				require.Equal(t, []string{"SUCCEEDED", "FAILED", "SKIPPED"}, outcomes(r.final()))
				require.Contains(t, r.final().Result.Details, "too many open files")
				require.Equal(t, c.after, r.device.installed[:2])
				require.Equal(t, c.calls, r.device.calls[slices.Index(r.device.calls, "installed 1")+1:])
			})
		})
	}
}

// textless is an error that panics whatever it is asked.
type textless struct{}

func (*textless) Error() string { panic("no text") }
func (*textless) Unwrap() error { panic("no cause") }

func TestAnErrorThatPanicsFailsItsStep(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code uint32
		text string
	}{
		"StepError without Err": {&agent.StepError{Code: 7}, 7, "step failed with code 7"},
		"nil StepError":         {(*agent.StepError)(nil), 0, "step failed"},
		"an error of its own":   {new(textless), 0, "an error whose Error method panics"},
	} {
		for call, area := range map[string]agent.Area{"install 0": agent.AreaInstall, "cancel 0": agent.AreaRestore} {
			t.Run(name+", "+call, func(t *testing.T) {
				inRig(t, func(t *testing.T, r *rig) {
					r.device.fail = func(now string) error {
						switch {
						case now == call:
							return c.err
						case now == "install 0":
							return errors.New("no space")
						}
						return nil
					}
					r.offered("wf-1", "1.0", "image")
					r.runs(time.Hour)
					f := r.final()
					require.Equal(t, agent.OutcomeFailed, f.Result.Outcome)
					require.Contains(t, f.Result.Extended, area.Code(c.code))
					if call == "install 0" {
						require.Contains(t, f.Result.Details, c.text)
					}
				})
			})
		}
	}
}

// waiting makes a call of a handler wait until the update is dropped.
func (r *rig) waiting(call string) {
	r.device.block[call] = make(chan struct{})
}

func TestANewWorkflowReplacesTheOneInProgress(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.waiting("install 1")
		newer := r.offer("wf-2", "2.0", "newer")
		r.offered("wf-1", "1.0", "first", "second")
		r.service.check = func(n int) error {
			if n == 2 {
				r.service.offer = newer
			}
			return nil
		}
		r.runs(3 * time.Hour)
		finals := r.service.finals()
		require.Len(t, finals, 2)
		require.Equal(t, agent.OutcomeCanceled, finals[0].Result.Outcome)
		require.Equal(t, agent.CodeFailure, finals[0].Result.Code)
		require.Equal(t, agent.OriginNotApplicable, finals[0].Result.Origin)
		require.Equal(t, []string{"SUCCEEDED", "CANCELED"}, outcomes(finals[0]))
		require.Equal(t, agent.OutcomeSucceeded, finals[1].Result.Outcome)
		require.Equal(t, "newer", r.device.installed[0])
		require.Contains(t, r.device.calls, "cancel 0")
	})
}

// The first Run ends before the handler has returned.
func TestAReplacedWorkflowIsNotInstalledByTheNextRun(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		newer := r.offer("wf-2", "2.0", "newer")
		r.offered("wf-1", "1.0", "image")
		r.service.check = func(n int) error {
			if n == 2 {
				r.service.offer = newer
			}
			return nil
		}
		installs := 0
		r.device.fail = func(call string) error {
			if call == "install 0" {
				if installs++; installs <= 2 {
					time.Sleep(2 * time.Hour) // Install cannot be interrupted
				}
			}
			return nil
		}
		a, err := agent.New(&r.options)
		require.NoError(t, err)
		for _, d := range []time.Duration{90 * time.Minute, 3 * time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			require.ErrorIs(t, a.Run(ctx), context.DeadlineExceeded)
			cancel()
		}
		require.Equal(t, []string{"installed 0", "download 0", "install 0", "install 0", "cancel 0",
			"installed 0", "download 0", "install 0", "apply 0"}, r.device.calls)
		finals := r.service.finals()
		require.Equal(t, []string{"wf-1", "wf-2"}, workflows(finals))
		require.Equal(t, agent.OutcomeCanceled, finals[0].Result.Outcome)
		require.Equal(t, agent.OutcomeSucceeded, finals[1].Result.Outcome)
	})
}

func TestTheServiceTakesAWorkflowBack(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.service.wake = make(chan struct{}, 1)
		r.waiting("download 0")
		r.offered("wf-1", "1.0", "image")
		time.AfterFunc(time.Minute, func() {
			r.service.mu.Lock()
			r.service.offer, r.service.answer.Cancel = nil, "wf-1"
			r.service.mu.Unlock()
			r.service.wake <- struct{}{}
		})
		began := time.Now()
		require.Zero(t, r.runs(10*time.Minute))
		require.Equal(t, agent.OutcomeCanceled, r.final().Result.Outcome)
		require.Contains(t, r.final().Result.Details, "cancelled by the service")
		require.Equal(t, []string{"installed 0", "download 0", "cancel 0"}, r.device.calls)
		require.Equal(t, 10*time.Minute, time.Since(began))
	})
}

// A workflow that is taken back while the handler looks at what is installed undoes that if it is
// on trial, and nothing otherwise.
func TestACancelUndoesWhatIsOnTrial(t *testing.T) {
	for _, trial := range []bool{false, true} {
		inRig(t, func(t *testing.T, r *rig) {
			r.options.Interval = time.Minute
			r.device.installed[0], r.device.backup[0], r.device.trial = "image", "older", trial
			r.waiting("installed 0")
			r.offered("wf-1", "1.0", "image")
			r.service.check = func(n int) error {
				if n == 2 {
					r.service.offer, r.service.answer.Cancel = nil, "wf-1"
				}
				return nil
			}
			require.Zero(t, r.runs(10*time.Minute))
			require.Equal(t, agent.OutcomeCanceled, r.final().Result.Outcome)
			if trial {
				require.Equal(t, []string{"CANCELED"}, outcomes(r.final()))
				require.Equal(t, "older", r.device.installed[0])
			} else {
				require.Equal(t, []string{"SKIPPED"}, outcomes(r.final()))
				require.Equal(t, []string{"installed 0"}, r.device.calls)
			}
		})
	}
}

// A power cut at the end of Apply: the program starts again and does not apply twice.
func TestAResetDuringApplyAsksWhatIsInstalled(t *testing.T) {
	for next, apply := range map[agent.Next]string{
		agent.NextContinue: "apply 0", agent.NextRestart: "apply 0 restarted",
	} {
		inRig(t, func(t *testing.T, r *rig) {
			r.device.next["install 0"] = next
			r.waiting(apply)
			r.offered("wf-1", "1.0", "image")
			r.runs(time.Minute)
			r.device.installed[0], r.device.calls = "image", nil
			r.runs(time.Hour)
			require.Equal(t, []string{"installed 0"}, r.device.calls)
			require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)

			r.offered("wf-2", "2.0", "second")
			r.runs(time.Minute)
			delete(r.device.block, apply)
			r.device.calls = nil
			r.runs(time.Hour)
			require.Equal(t, []string{"installed 0", apply}, r.device.calls)
			require.Equal(t, "second", r.device.installed[0])
		})
	}
}

// A handler finds the manifest of a step of type reference, and the files that it names.
func TestAReferenceStepHasItsManifestAndAllURLs(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		o := r.offer("wf-1", "1.0", "child manifest")
		resign(o, `{"handler":"h","files":["f0"],"handlerProperties":{"installedCriteria":"child manifest"}}`,
			`{"type":"reference","detachedManifestFileId":"f0"}`)
		o.URLs["of the child"] = "https://files/child"
		r.service.offer = o
		r.options.Handlers = map[string]agent.Handler{"": handler{r.device}}
		r.device.seen = func(w *agent.Work) {
			require.Equal(t, "f0", w.Step.Manifest)
			require.Equal(t, "f0", w.Files[0].ID)
			require.Equal(t, "https://files/child", w.URLs["of the child"])
		}
		r.runs(time.Hour)
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
		require.Equal(t, "child manifest", r.device.downloads["wf-1f0"])
	})
}

func TestUpdatesMayBeChained(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.options.Interval = 100 * time.Hour
		r.offered("wf-1", "1.0", "image")
		r.service.report = func(rep *agent.Report) error {
			if rep.Final() && rep.WorkflowID == "wf-1" {
				r.service.offer = r.offer("wf-2", "2.0", "second")
			}
			return nil
		}
		r.runs(time.Minute)
		require.Len(t, r.service.finals(), 2)
		require.Equal(t, "second", r.device.installed[0])
	})
}

func TestAHandlerThatPanicsFailsItsStep(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.device.fail = func(call string) error {
			if call == "apply 0" {
				panic("boom")
			}
			return nil
		}
		r.offered("wf-1", "1.0", "image")
		r.runs(time.Hour)
		require.Contains(t, r.final().Result.Details, "panicked: boom")
	})
}

func TestTheStatusFollowsTheUpdate(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		var phases []string
		r.options.OnStatus = func(s agent.Status) {
			phases = append(phases, fmt.Sprint(s.Phase, " ", s.WorkflowID, " ", s.Update.Version))
		}
		r.offered("wf-1", "1.0", "image")
		r.runs(time.Hour)
		phases = slices.Compact(phases)
		require.Equal(t, []string{"verify wf-1 ", "installed wf-1 1.0", "download wf-1 1.0", "install wf-1 1.0",
			"apply wf-1 1.0", "idle wf-1 1.0"}, phases[len(phases)-6:])
		a, err := agent.New(&r.options)
		require.NoError(t, err)
		s := a.Status()
		require.Equal(t, agent.OutcomeSucceeded, s.Latest.Outcome)
		require.Equal(t, "wf-1", s.WorkflowID)
		require.Zero(t, s.Unsent)
	})
}
