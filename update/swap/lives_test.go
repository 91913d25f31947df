//go:build unix

package swap

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/update/agent"
)

var (
	errKilled = errors.New("killed")
	errExec   = errors.New("another program continues")
)

// life is a service, and a program that updates it as the agent does. The program is killed before
// one change on the disk.
type life struct {
	t       *testing.T
	path    string
	self    bool        // the service is the program
	next    string      // the content of the new file: "good", "sick" or "crash"
	killAt  int         // 0: never
	changes int         // on the disk
	runs    string      // the content of the file that the service runs
	cancel  agent.Phase // before it, the update is cancelled; 0: never
	file    *File       // of the program's present process
	phase   agent.Phase
	resumed bool // Work.Restarted
	results []string
}

// folder returns a new folder in parent.
func folder(t *testing.T, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "swap")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newLife(t *testing.T, self bool, next string, killAt int) *life {
	parent := "/dev/shm" // flushing a disk takes most of the time
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	l := &life{t: t, path: filepath.Join(folder(t, parent), "gated"), self: self, next: next, killAt: killAt, runs: "old",
		phase: agent.PhaseInstalled}
	require.NoError(t, os.WriteFile(l.path, []byte("old"), 0o750))
	step = func(name string) {
		require.Contains(t, []string{"old", next}, l.content(), "before: %s", name)
		if l.changes++; l.changes == l.killAt {
			panic(errKilled)
		}
	}
	execute = func(string, []string, []string) error { return errExec }
	t.Cleanup(func() { step = func(string) {} })
	return l
}

func (l *life) content() string {
	text, err := os.ReadFile(l.path)
	require.NoError(l.t, err)
	return string(text)
}

// started is a new process of the program.
func (l *life) started() {
	l.file = &File{Path: l.path, Healthy: l.healthy}
	if !l.self {
		l.file.Restart = func(context.Context) error {
			l.runs = l.content()
			return nil
		}
		return
	}
	for {
		l.runs = l.content()
		err := Start(l.path, 3)
		if errors.Is(err, errExec) {
			l.runs = l.content()
		} else {
			require.NoError(l.t, err)
		}
		if l.runs != "crash" {
			return
		}
	}
}

func (l *life) healthy(context.Context) error {
	if l.runs == "sick" || l.runs == "crash" {
		return errors.New("it has no connection")
	}
	return nil
}

// run goes on until there is a final result, in fake time.
func (l *life) run() {
	l.t.Helper()
	testkit.Bubble(l.t, func(*testing.T) { l.live() })
}

func (l *life) live() {
	for range 30 {
		func() {
			defer func() {
				r := recover()
				if err, ok := r.(error); r != nil && (!ok || !errors.Is(err, errKilled)) {
					panic(r)
				}
			}()
			l.started()
			for len(l.results) == 0 && l.advance() == agent.NextContinue {
			}
		}()
		if len(l.results) > 0 {
			return
		}
	}
	require.Fail(l.t, "the update does not end")
}

// advance does one phase as the agent does.
func (l *life) advance() agent.Next {
	ctx := context.Background()
	w := &agent.Work{Files: []agent.File{{Size: int64(len(l.next)), SHA256: sha256.Sum256([]byte(l.next))}},
		Restarted: l.resumed}
	l.resumed = false
	var next agent.Next
	var err error
	var done bool
	if l.phase == l.cancel {
		l.phase = agent.PhaseRollback
	}
	following := l.phase + 1
	switch l.phase {
	case agent.PhaseInstalled, agent.PhaseConfirm:
		done, err = l.file.Installed(ctx, w)
		if l.phase == agent.PhaseConfirm && err == nil && !done {
			err = errors.New("not installed")
		}
	case agent.PhaseDownload:
		err = os.WriteFile(l.path+".new", []byte(l.next), 0o600)
	case agent.PhaseInstall:
		next, err = l.file.Install(ctx, w)
	case agent.PhaseApply:
		next, err = l.file.Apply(ctx, w)
		done = err == nil && next == agent.NextContinue
	case agent.PhaseRollback:
		next, err = l.file.Cancel(ctx, w)
		require.NoError(l.t, err)
		if next == agent.NextContinue {
			l.results = append(l.results, "failed")
		}
		following = agent.PhaseRollback
	}
	switch {
	case err != nil && l.phase == agent.PhaseInstalled && !done:
		l.results = append(l.results, "failed")
	case done && err == nil:
		l.results = append(l.results, "succeeded")
	case err != nil:
		l.phase, next = agent.PhaseRollback, agent.NextContinue
	default:
		l.phase, l.resumed = following, next == agent.NextRestart
	}
	return next
}

// A program that is killed before any change on the disk still ends with the right file, the right
// service and one result.
func TestAKillBeforeAnyChangeLosesNoFile(t *testing.T) {
	for _, c := range []struct {
		self bool
		next string
		want string
	}{
		{false, "good", "good"}, {false, "sick", "old"},
		{true, "good", "good"}, {true, "sick", "old"}, {true, "crash", "old"},
	} {
		t.Run(fmt.Sprintf("%s, self %v", c.next, c.self), func(t *testing.T) {
			first := newLife(t, c.self, c.next, 0)
			first.run()
			for killAt := range first.changes + 1 {
				l := newLife(t, c.self, c.next, killAt)
				l.run()
				result := "failed"
				if c.want == c.next {
					result = "succeeded"
				}
				require.Equal(t, []string{result}, l.results, "killed before change %d of %d", killAt, first.changes)
				require.Equal(t, c.want, l.content(), "killed before change %d of %d", killAt, first.changes)
				require.Equal(t, c.want, l.runs, "killed before change %d of %d", killAt, first.changes)
				info, err := os.Stat(l.path)
				require.NoError(t, err)
				require.Equal(t, os.FileMode(0o750), info.Mode())
				l.leaves(t, c.want)
			}
			t.Logf("%d changes", first.changes)
		})
	}
}

// An update that is cancelled before any phase leaves the old file, whenever the program is killed
// besides.
func TestACancelledUpdateLeavesTheOldFile(t *testing.T) {
	for _, self := range []bool{false, true} {
		for phase := agent.PhaseInstall; phase <= agent.PhaseConfirm; phase++ {
			cancelled := func(killAt int) *life {
				l := newLife(t, self, "good", killAt)
				l.cancel = phase
				l.run()
				return l
			}
			for killAt := range cancelled(0).changes + 1 {
				l := cancelled(killAt)
				if phase == agent.PhaseConfirm && l.results[0] == "succeeded" {
					continue // without a restart, or after a kill: the service was examined at once
				}
				require.Equal(t, "old", l.content(), "self %v, cancelled before %v, killed before %d", self, phase, killAt)
				require.Equal(t, "old", l.runs, "self %v, cancelled before %v, killed before %d", self, phase, killAt)
				l.leaves(t, "old")
			}
		}
	}
}

// leaves checks what is in the folder at the end.
func (l *life) leaves(t *testing.T, want string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(l.path))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimPrefix(e.Name(), "gated"))
	}
	if want == "old" && len(names) == 1 {
		return // killed before there was a way back
	}
	require.Equal(t, []string{"", ".old"}, names)
}

// A step of type reference has one file, too: its manifest. It must not become the program.
func TestAStepThatIsNoFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gated")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	healthy := func(context.Context) error { return nil }
	one := make([]agent.File, 1)
	for text, c := range map[string]struct {
		file File
		work agent.Work
	}{
		"File.Path":        {File{Healthy: healthy}, agent.Work{Files: one}},
		"File.Healthy":     {File{Path: path}, agent.Work{Files: one}},
		"another manifest": {File{Path: path, Healthy: healthy}, agent.Work{Files: one, Step: agent.Step{Manifest: "f1"}}},
		"0 files":          {File{Path: path, Healthy: healthy}, agent.Work{}},
		"no such file":     {File{Path: path + "2", Healthy: healthy}, agent.Work{Files: one}},
	} {
		_, installed := c.file.Installed(t.Context(), &c.work)
		_, install := c.file.Install(t.Context(), &c.work)
		_, apply := c.file.Apply(t.Context(), &c.work)
		_, cancel := c.file.Cancel(t.Context(), &c.work)
		for _, err := range []error{installed, c.file.Download(t.Context(), &c.work), install, apply, cancel} {
			require.ErrorContains(t, err, text)
		}
	}
}

// Links beside the file, which another program has left, are replaced. Their targets stay as they
// are.
func TestLinksBesideTheFileAreNotFollowed(t *testing.T) {
	for _, link := range []string{".new", ".starts", ".old", ".link"} {
		t.Run(link, func(t *testing.T) {
			m := newMachine(t, "service", "good", 0)
			path, target := m.dir+"/gated", filepath.Join(t.TempDir(), "target")
			require.NoError(t, os.WriteFile(target, []byte("#!/bin/sh\nSWAP"), 0o600))
			require.NoError(t, os.Symlink(target, path+link))
			m.updated()
			have, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(m.script("good")), string(have))
			untouched, err := os.ReadFile(target)
			require.NoError(t, err)
			require.Equal(t, "#!/bin/sh\nSWAP", string(untouched))
			info, err := os.Stat(target)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode())
			info, err = os.Lstat(path)
			require.NoError(t, err)
			require.True(t, info.Mode().IsRegular())
		})
	}
}

func TestALinkInPlaceOfTheOldFileIsNotPutBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gated")
	require.NoError(t, os.WriteFile(path, []byte("new"), 0o600))
	require.NoError(t, os.Symlink("/dev/null", path+".old"))
	file := &File{Path: path, Healthy: func(context.Context) error { return nil }}
	w := &agent.Work{Files: []agent.File{{SHA256: sha256.Sum256([]byte("new"))}}}
	_, err := file.Cancel(t.Context(), w)
	require.ErrorContains(t, err, "the old file is not at")
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular())
}

// The new program is on trial, and cannot read the state of the agent before it.
func TestAFileOnTrialIsPutBackByAnAgentThatHasLostItsState(t *testing.T) {
	for next, want := range map[string]string{"good": "good", "sick": "old"} {
		l := newLife(t, true, next, 0)
		testkit.Bubble(t, func(*testing.T) {
			l.started()
			for l.advance() == agent.NextContinue {
			}
			require.Equal(t, next, l.content())
			l.phase, l.resumed = agent.PhaseInstalled, false
			l.live()
		})
		require.Equal(t, want, l.content())
		require.Equal(t, want, l.runs)
		l.leaves(t, want)
	}
}

// The file was right before the update. Once it cannot be read.
func TestAFileThatWasRightBeforeIsNotPutBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		m := newMachine(t, "service", "good", 0)
		path := m.dir + "/gated"
		require.NoError(t, os.WriteFile(path, m.script("good"), 0o700))
		require.NoError(t, os.WriteFile(path+".old", m.script("older"), 0o700))
		ctx, cancel := context.WithCancel(t.Context())
		works := func(context.Context) error { return nil }
		o := backEnd(m.dir).options(&File{Path: path, Healthy: works, Restart: works})
		var latest agent.Result
		o.OnStatus = func(s agent.Status) {
			switch _, err := os.Stat(path); { // the status comes before the look, and again after it
			case s.Phase == agent.PhaseInstalled && err == nil:
				require.NoError(t, os.Rename(path, path+".away"))
			case s.Phase != agent.PhaseInstalled && err != nil:
				require.NoError(t, os.Rename(path+".away", path))
			}
			if latest = s.Latest; latest.Outcome != agent.OutcomeInProgress {
				cancel()
			}
		}
		a, err := agent.New(o)
		require.NoError(t, err)
		require.ErrorIs(t, a.Run(ctx), context.Canceled)
		require.Equal(t, agent.OutcomeFailed, latest.Outcome)
		have, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(m.script("good")), string(have))
	})
}

// Other processes of the program, such as -version of a monitor, may count as starts.
func TestAFileThatIsPutBackMeanwhileIsNotInstalled(t *testing.T) {
	l := newLife(t, true, "good", 0)
	testkit.Bubble(t, func(*testing.T) {
		l.started()
		for l.advance() == agent.NextContinue {
		}
		require.Equal(t, "good", l.content())
		l.started()
		l.file.Healthy = func(context.Context) error {
			for range 4 {
				_ = Start(l.path, 3)
			}
			return nil
		}
		for len(l.results) == 0 && l.advance() == agent.NextContinue {
		}
		require.Empty(t, l.results, "the new program asks for a restart")
		l.live()
	})
	require.Equal(t, []string{"failed"}, l.results)
	require.Equal(t, "old", l.content())
	require.Equal(t, "old", l.runs)
}

// A disk that the new program has filled.
func TestAStartThatCannotBeCountedGoesBack(t *testing.T) {
	l := newLife(t, true, "crash", 0)
	l.started()
	for l.advance() == agent.NextContinue {
	}
	require.Equal(t, "crash", l.content())
	counted := count
	t.Cleanup(func() { count = counted })
	count = func(string, int) (bool, error) { return false, syscall.ENOSPC }
	require.ErrorIs(t, Start(l.path, 3), errExec)
	require.Equal(t, "old", l.content())

	require.NoError(t, os.Remove(l.path)) // the same file as the old one
	require.NoError(t, os.WriteFile(l.path, []byte("crash"), 0o700))
	ended := false
	count = func(path string, tries int) (bool, error) {
		ended = true
		require.NoError(t, os.Remove(path))
		return counted(path, tries)
	}
	require.NoError(t, Start(l.path, 3), "the trial has just ended")
	require.True(t, ended)
	require.Equal(t, "crash", l.content())
}

// The error says also why the service was not healthy meanwhile.
func TestAFileThatIsPutBackKeepsTheFailure(t *testing.T) {
	l := newLife(t, true, "good", 0)
	testkit.Bubble(t, func(t *testing.T) {
		l.started()
		l.runs = "sick"
		w := &agent.Work{Files: []agent.File{{Size: 4, SHA256: sha256.Sum256([]byte("good"))}}}
		err := l.file.examine(t.Context(), w, true)
		require.ErrorIs(t, err, errOther)
		require.ErrorContains(t, err, "it has no connection")
	})
}

// The name of the downloaded file must outlive a power cut: the agent goes on with Install.
func TestADownloadFlushesTheFolder(t *testing.T) {
	l := newLife(t, false, "", 0)
	var names []string
	step = func(name string) { names = append(names, name) }
	file := File{Path: l.path, Healthy: l.healthy}
	empty := agent.File{URL: "https://files/empty", SHA256: sha256.Sum256(nil)}
	require.NoError(t, file.Download(t.Context(), &agent.Work{Files: []agent.File{empty}}))
	require.FileExists(t, l.path+".new")
	require.Equal(t, []string{"download"}, names, "it is a change, which flushes the folder")
}
