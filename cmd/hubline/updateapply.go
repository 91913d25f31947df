package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/atomicfile"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/host"
)

func (t *tool) updateApplyCommand() *cobra.Command {
	var u *updating
	var program string
	c := &cobra.Command{
		Use: "apply [flags]", Short: "install the update that is offered, and report", Args: arguments(0, 0),
		Long: helpText("update-apply"),
		RunE: func(c *cobra.Command, _ []string) error { return u.apply(c.Context(), program) },
	}
	c.Flags().StringVar(&program, "exec", "", "`PROGRAM` that installs: it gets the files of a step as arguments; "+
		"without it they are downloaded alone")
	u = t.updating(c)
	return c
}

// apply runs an agent until the service has the final report, or has nothing to offer.
func (u *updating) apply(ctx context.Context, program string) error {
	if program != "" {
		if _, err := exec.LookPath(program); err != nil {
			return usage("-exec: %v", err)
		}
	}
	if err := os.MkdirAll(u.dir, 0o700); err != nil {
		return usage("-dir: %v", err)
	}
	w, err := u.connect(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	once := &onePass{Service: w.service, done: make(chan error, 1)}
	options := &agent.Options{
		Service: once, Fetch: w.fetch, Verify: w.keys.Verify, RootKeys: w.keys.Update, Policy: w.policy,
		Store:      host.NewStore(filepath.Join(u.dir, "state")),
		Handlers:   map[string]agent.Handler{"": &folderHandler{u.dir, program, u.tool.log}},
		Properties: w.properties, Spread: -1,
		OnStatus: func(s agent.Status) { once.look(s, u.say) },
	}
	if w.installed != (agent.UpdateID{}) {
		options.Installed = func() agent.UpdateID { return w.installed }
	}
	a, err := agent.New(options)
	if err != nil {
		return usage("-dir: %v", err)
	}
	return u.run(ctx, a, once, w)
}

// run runs the agent until once is done.
func (u *updating) run(ctx context.Context, a *agent.Agent, once *onePass, w *updates) error {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.session != nil {
		ctx = w.session.ctx
	}
	defer context.AfterFunc(ctx, func() { once.end(firstError(w.cause(), errGoesOn)) })()
	if u.wait > 0 {
		defer time.AfterFunc(u.wait, func() { once.giveUp(u.wait, a.Status().Err) }).Stop()
	}
	ran := make(chan error, 1)
	go func() { ran <- a.Run(run) }() // ends with run
	select {
	case err := <-ran: // of the store, or the end of ctx
		if ctx.Err() != nil {
			err = firstError(w.cause(), errGoesOn)
		}
		return err
	case err := <-once.done:
		cancel()
		<-ran
		if err != nil {
			return err
		}
	}
	return u.result(a.Status(), once.began)
}

var errGoesOn = errors.New("interrupted; the next hubline update apply goes on with it")

// result prints how the update ended.
func (u *updating) result(s agent.Status, began bool) error {
	if !began {
		_, err := fmt.Fprintf(u.tool.out, "no update for %s\n", strings.Join(u.properties, " "))
		return err
	}
	if _, err := fmt.Fprintf(u.tool.out, "%s: %v\n", visible(s.WorkflowID), s.Latest.Outcome); err != nil {
		return err
	}
	if s.Latest.Outcome == agent.OutcomeSucceeded || s.Latest.Outcome == agent.OutcomeSkipped {
		return nil
	}
	return &exitError{exitFailed, fmt.Errorf("the update ended with %v: %s", s.Latest.Outcome, visible(s.Latest.Details))}
}

// onePass is a service that knows when an agent has no more to do.
type onePass struct {
	agent.Service
	done chan error // capacity 1

	mu      sync.Mutex
	replied bool   // the service has answered something
	settled bool   // the latest call was a Check that brought nothing new, or a final report of a failure
	began   bool   // there was an update
	last    string // line that was printed
}

// giveUp ends the command if the service has answered nothing for d.
func (o *onePass) giveUp(d time.Duration, last error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.replied {
		o.end(&exitError{exitNetwork, fmt.Errorf("no answer from the service within %v: %w", d,
			firstError(last, errors.New("nothing was tried")))})
	}
}

// Check asks. An error that no retry mends ends the command.
func (o *onePass) Check(ctx context.Context, q *agent.Query) (*agent.Answer, error) {
	a, err := ask(ctx, o.Service, q)
	o.note(err, err == nil)
	return a, err
}

// Wake is that of the service: a deployment may be cancelled meanwhile.
func (o *onePass) Wake() <-chan struct{} {
	if waker, ok := o.Service.(agent.Waker); ok {
		return waker.Wake()
	}
	return nil
}

// Report reports. After a success there may be another update, so the agent asks again.
func (o *onePass) Report(ctx context.Context, r *agent.Report) error {
	err := o.Service.Report(ctx, r)
	o.note(err, err == nil && r.Final() && r.Result.Outcome != agent.OutcomeSucceeded)
	return err
}

func (o *onePass) note(err error, settled bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.replied, o.settled = o.replied || err == nil, settled
	if err != nil && !errfilter.Retryable(err) && !errors.Is(err, context.Canceled) {
		o.end(err)
	}
}

func (o *onePass) end(err error) {
	select {
	case o.done <- err:
	default: // it has ended
	}
}

// phaseTexts are what a person reads of a phase: nothing of those that take no time.
var phaseTexts = map[agent.Phase]string{
	agent.PhaseVerify: "verifying the offer", agent.PhaseDownload: "downloading", agent.PhaseInstall: "installing",
	agent.PhaseRollback: "taking it back",
}

// look prints a change and ends the command when nothing is left to do.
func (o *onePass) look(s agent.Status, say func(string, ...any)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	line := phaseTexts[s.Phase]
	if s.Phase != agent.PhaseIdle {
		o.began = true
		if s.Update != (agent.UpdateID{}) && line != "" {
			line = updateIDText(s.Update) + ": " + line
		}
		if s.Steps > 1 && line != "" {
			line = fmt.Sprintf("%s, step %d of %d", line, s.Step+1, s.Steps)
		}
	}
	if s.Unsent > 0 {
		line = "reporting the result"
		o.began = true
	}
	if s.Err != nil {
		line = s.Err.Error()
	}
	if line != o.last && line != "" {
		say("%s", visible(line))
	}
	o.last = line
	if o.settled && s.Phase == agent.PhaseIdle && s.Unsent == 0 {
		o.end(nil)
	}
}

// folderHandler downloads the files of each step into a folder of the update, and gives them to a
// program.
type folderHandler struct {
	dir     string
	program string
	log     io.Writer
}

// doneFile says in the folder of an update that a step of it is installed.
func doneFile(w *agent.Work) string { return fmt.Sprintf(".step-%d-installed", w.Index+1) }

// folder is that of an update. Its name comes from the signed manifest, and names no other folder.
func (h *folderHandler) folder(w *agent.Work) string {
	return filepath.Join(h.dir, "files", url.QueryEscape(updateIDText(w.ID)))
}

func (h *folderHandler) path(w *agent.Work, f *agent.File) string {
	return filepath.Join(h.folder(w), f.Name)
}

// Installed reports whether the step was installed, which a file says.
func (h *folderHandler) Installed(_ context.Context, w *agent.Work) (bool, error) {
	_, err := os.Stat(filepath.Join(h.folder(w), doneFile(w)))
	return err == nil, nil
}

// Download brings the files into the folder. A file that an earlier run has begun is continued.
func (h *folderHandler) Download(ctx context.Context, w *agent.Work) error {
	if err := os.MkdirAll(h.folder(w), 0o700); err != nil {
		return err
	}
	for i := range w.Files {
		if err := h.download(ctx, w, &w.Files[i]); err != nil {
			return err
		}
	}
	for _, path := range []string{h.folder(w), filepath.Join(h.dir, "files"), h.dir} {
		flushFolder(path) // else a power cut loses the files that the agent takes for complete
	}
	return nil
}

// flushFolder flushes the names in a folder. Tests replace it.
var flushFolder = atomicfile.FlushFolder

func (h *folderHandler) download(ctx context.Context, w *agent.Work, f *agent.File) error {
	path := h.path(w, f)
	if has(path, f) {
		return nil
	}
	name := path + ".part"
	_, err := os.Stat(name)
	begun := err == nil
	for {
		part, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		err = errors.Join(fetch(ctx, w, f, part), part.Close())
		switch kind := transport.KindOf(err); {
		case err == nil:
			return os.Rename(name, path)
		case kind != transport.Protocol && kind != transport.Invalid:
			return err
		}
		if err = errors.Join(err, os.Remove(name)); !begun { // what was read is of no use
			return err
		}
		begun = false // a power cut may have damaged what was there
	}
}

// has reports whether the file at path is f.
func has(path string, f *agent.File) bool {
	in, err := os.Open(path)
	if err != nil {
		return false
	}
	defer in.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, in)
	return err == nil && [sha256.Size]byte(sum.Sum(nil)) == f.SHA256
}

// fetch appends to part what it lacks of the file.
func fetch(ctx context.Context, w *agent.Work, f *agent.File, part *os.File) error {
	from, err := w.Open(ctx, f, part)
	if err != nil {
		return err
	}
	defer from.Close()
	if _, err := io.Copy(part, from); err != nil {
		return err
	}
	return part.Sync()
}

// Install runs the program.
func (h *folderHandler) Install(ctx context.Context, w *agent.Work) (agent.Next, error) {
	if h.program != "" {
		var paths []string
		for i := range w.Files {
			paths = append(paths, h.path(w, &w.Files[i]))
		}
		command := exec.CommandContext(ctx, h.program, paths...)
		command.Env = append(os.Environ(), "HUBLINE_UPDATE="+updateIDText(w.ID), fmt.Sprintf("HUBLINE_STEP=%d", w.Index+1))
		command.Stdout, command.Stderr, command.WaitDelay = h.log, h.log, time.Second
		if err := command.Run(); err != nil {
			return agent.NextContinue, fmt.Errorf("%s: %w", filepath.Base(h.program), err)
		}
	}
	return agent.NextContinue, atomicfile.Write(filepath.Join(h.folder(w), doneFile(w)), nil)
}

// Apply has nothing to do: the program has installed.
func (*folderHandler) Apply(context.Context, *agent.Work) (agent.Next, error) {
	return agent.NextContinue, nil
}

// Cancel removes the files. What the program did stays.
func (h *folderHandler) Cancel(_ context.Context, w *agent.Work) (agent.Next, error) {
	return agent.NextContinue, os.RemoveAll(h.folder(w))
}
