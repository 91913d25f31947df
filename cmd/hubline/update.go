package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/update/adusign"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/classic"
	"github.com/hubline-iot/hubline/update/dpsupdate"
	"github.com/hubline-iot/hubline/update/host"
)

// updating has the flags of commands that ask for software updates.
type updating struct {
	*connection
	properties []string
	installed  string
	rootKeys   string
	dir        string
	json       bool
}

func (t *tool) updateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "update", Short: "ask for software updates, and install them", Long: helpText("update"), Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return noCommand(c, nil) },
	}
	c.AddCommand(t.updateCheckCommand(), t.updateApplyCommand(), t.updateStatusCommand())
	return c
}

// updating adds the flags to a command's.
func (t *tool) updating(c *cobra.Command) *updating {
	u := &updating{}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&u.properties, "property", nil, "property that updates are chosen by, `NAME=VALUE`, such as "+
		"manufacturer=Contoso; 1 to 5 of them")
	flags.StringVar(&u.installed, "installed", "", "the update that the device has, `PROVIDER/NAME/VERSION`; empty: "+
		"unknown, or the one that -dir remembers")
	flags.StringVar(&u.rootKeys, "root-keys", "", "`FILE` with a package of root keys to trust instead of Microsoft's, "+
		"such as an emulator's")
	flags.StringVar(&u.dir, "dir", "hubline-updates", "`DIR` for the state and the files of updates")
	flags.BoolVar(&u.json, "json", false, "print the result as JSON")
	u.connection = t.connection(c)
	return u
}

// maxUpdateProperties is how many the service takes.
const maxUpdateProperties = 5

// updateProperties returns the properties of a flag that updates are chosen by.
func updateProperties(flag string, given []string) (all agent.Properties, err error) {
	if len(given) > maxUpdateProperties {
		return nil, usage("%s: %d properties are too many; give up to %d", flag, len(given), maxUpdateProperties)
	}
	for _, p := range given {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, usage("%s: %q has no name and value; write NAME=VALUE", flag, p)
		}
		all = append(all, agent.Property{Name: name, Value: value})
	}
	return all, nil
}

// parseUpdateID reads the value of -installed.
func parseUpdateID(text string) (id agent.UpdateID, err error) {
	parts := strings.Split(text, "/")
	switch {
	case text == "":
		return id, nil
	case len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "":
		return id, usage("-installed: %q is no update; write PROVIDER/NAME/VERSION", text)
	}
	return agent.UpdateID{Provider: parts[0], Name: parts[1], Version: parts[2]}, nil
}

func updateIDText(id agent.UpdateID) string { return id.Provider + "/" + id.Name + "/" + id.Version }

// updates is a way to a service of updates, with what an agent needs besides.
type updates struct {
	service    agent.Service
	properties agent.Properties
	installed  agent.UpdateID
	keys       *adusign.Keys
	fetch      agent.Fetcher
	policy     retrypolicy.Policy
	close      func()
	// ended ends when the connection is given up; cause says why.
	ended context.Context
	cause func() error
}

// connect returns the way to the service: the provisioning service for a device that registers, and
// otherwise the hub's twin.
func (u *updating) connect(ctx context.Context) (w *updates, err error) {
	w = &updates{close: func() {}, ended: context.Background(), cause: func() error { return nil }}
	if w.properties, err = updateProperties("-property", u.properties); err != nil {
		return nil, err
	}
	if len(w.properties) == 0 {
		return nil, usage("-property: give 1 to %d properties that updates are chosen by, such as -property "+
			"manufacturer=Contoso -property model=Tractor", maxUpdateProperties)
	}
	if w.installed, err = parseUpdateID(u.installed); err != nil {
		return nil, err
	}
	if w.policy, err = u.retries(); err != nil {
		return nil, err
	}
	if w.keys, err = u.keys(); err != nil {
		return nil, err
	}
	to, err := u.find()
	if err != nil {
		return nil, err
	}
	w.fetch = host.NewFetcher(u.web(to))
	if to.Identity != nil {
		registrar, err := to.Registrar(&provisioning.Options{})
		if err != nil {
			return nil, err
		}
		w.service, err = dpsupdate.New(registrar, nil)
		w.close = registrar.CloseIdle
		return w, err
	}
	return w, u.throughTwin(ctx, to, w)
}

// throughTwin makes the service of a hub's twin.
func (u *updating) throughTwin(ctx context.Context, to *target.Target, w *updates) error {
	if !to.HasTwin() {
		return usage("update: it needs a device that registers (-id-scope, -registration-id), or a hub over MQTT or AMQP, " +
			"whose twin carries Device Update")
	}
	to.Announce(classic.ModelID)
	session, err := u.session(ctx, to, &device.Options{})
	if err != nil {
		return err
	}
	w.close, w.ended, w.cause = func() { _ = session.Close() }, session.ctx, session.cause
	if w.service, err = classic.New(session.Client); err == nil {
		err = u.open(ctx, session)
	}
	if err != nil {
		w.close()
	}
	return err
}

// keys returns the keys that offers are verified by, with the package that the folder has.
func (u *updating) keys() (*adusign.Keys, error) {
	o := &adusign.KeysOptions{}
	if _, err := os.Stat(u.dir); err == nil {
		o.Store = host.NewStore(filepath.Join(u.dir, "root-keys"))
	}
	text, err := u.trusted()
	if err != nil {
		return nil, err
	}
	if text != nil {
		if o.Roots, err = adusign.RootsOf(text); err != nil {
			return nil, usage("-root-keys: %s: %v", u.rootKeys, cause(err))
		}
	}
	keys, err := adusign.NewKeys(o)
	if err != nil {
		return nil, usage("-dir: %v", err)
	}
	return keys, nil
}

// trusted returns the package of root keys that is trusted in place of Microsoft's keys. Nil: none.
func (u *updating) trusted() (text []byte, err error) {
	switch {
	case u.rootKeys != "":
		if text, err = os.ReadFile(u.rootKeys); err != nil {
			return nil, usage("-root-keys: %v", err)
		}
	case u.target.Testhub != "":
		return target.TesthubRootKeys(u.tool.world.Getenv)
	}
	return text, nil
}

// web returns the HTTP client for files, with the trust and the proxy of the target.
func (u *updating) web(to *target.Target) *http.Client {
	t := &http.Transport{TLSClientConfig: to.Network.TLS.Clone(), DialContext: to.Network.Dial, ForceAttemptHTTP2: true}
	if to.Network.Dial == nil && !u.target.NoProxy {
		t.Proxy = http.ProxyFromEnvironment
	}
	return &http.Client{Transport: t}
}

func (t *tool) updateCheckCommand() *cobra.Command {
	var u *updating
	c := &cobra.Command{
		Use: "check [flags]", Short: "ask for an update, verify it and print it", Args: arguments(0, 0),
		Long: "Asks the service for an update, verifies it whole (root keys, signature, manifest) and prints it. Nothing " +
			"is downloaded, and nothing is reported. The exit status is 0 with and without an update.",
		RunE: func(c *cobra.Command, _ []string) error { return u.check(c.Context()) },
	}
	u = t.updating(c)
	return c
}

// offered is an update as update check prints it.
type offered struct {
	Offered    bool         `json:"offered"`
	WorkflowID string       `json:"workflowId,omitempty"`
	Update     string       `json:"update,omitempty"`
	Steps      []updateStep `json:"steps,omitempty"`
	Canceled   string       `json:"canceled,omitempty"`
}

type updateStep struct {
	Handler string       `json:"handler"`
	Files   []updateFile `json:"files"`
}

type updateFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

func (u *updating) check(ctx context.Context) error {
	w, err := u.connect(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	limit, cancel := limited(ctx, u.wait)
	defer cancel()
	answer, err := retrypolicy.DoValue(limit, w.policy, func(ctx context.Context) (*agent.Answer, error) {
		return ask(ctx, w.service, &agent.Query{Installed: w.installed, Profile: 1, Properties: w.properties})
	})
	if err != nil {
		return firstError(w.cause(), err)
	}
	out := &offered{Canceled: answer.Cancel}
	if answer.Offer != nil {
		m, err := w.verify(limit, answer)
		if err != nil {
			return fmt.Errorf("workflow %s is offered, and is not to be trusted: %w", answer.Offer.WorkflowID, err)
		}
		out.fill(answer.Offer, m)
	}
	if u.json {
		return u.tool.json(out)
	}
	return out.print(u.tool.out, u.properties)
}

// newsTime is how long a service that writes to the twin may take to answer what it has learnt of
// the device.
const newsTime = 10 * time.Second

// ask asks for an update. A service in the twin learns by the question which updates are for the
// device, so without an offer it gets time for one.
func ask(ctx context.Context, service agent.Service, q *agent.Query) (*agent.Answer, error) {
	timer := time.NewTimer(newsTime)
	defer timer.Stop()
	for {
		a, err := service.Check(ctx, q)
		waker, ok := service.(agent.Waker)
		if err != nil || !ok || a.Offer != nil || a.Cancel != "" {
			return a, err
		}
		select {
		case <-waker.Wake():
		case <-timer.C:
			return a, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// maxRootKeys bounds a package of root keys.
const maxRootKeys = 64 << 10

// verify returns the manifest of an offer by a trusted key.
func (w *updates) verify(ctx context.Context, a *agent.Answer) (*agent.Manifest, error) {
	if address := cmp.Or(a.Offer.RootKeysURL, a.Memo.RootKeysURL); address != "" {
		text, err := retrypolicy.DoValue(ctx, w.policy, func(ctx context.Context) ([]byte, error) {
			body, err := w.fetch.Fetch(ctx, address, 0)
			if err != nil {
				return nil, err
			}
			defer body.Close()
			return io.ReadAll(io.LimitReader(body, maxRootKeys+1))
		})
		if err == nil {
			err = w.keys.Update(text)
		}
		if err != nil {
			return nil, fmt.Errorf("root keys: %w", err)
		}
	}
	if err := w.keys.Verify(a.Offer.Manifest, a.Offer.Signature); err != nil {
		return nil, err
	}
	return agent.ParseManifest(a.Offer.Manifest)
}

func (o *offered) fill(offer *agent.Offer, m *agent.Manifest) {
	o.Offered, o.WorkflowID, o.Update = true, offer.WorkflowID, updateIDText(m.ID)
	for _, s := range m.Steps {
		step := updateStep{Handler: cmp.Or(s.Handler, "a manifest of its own")}
		for _, id := range s.Files {
			for _, f := range m.Files {
				if f.ID == id {
					step.Files = append(step.Files, updateFile{f.Name, f.Size})
				}
			}
		}
		o.Steps = append(o.Steps, step)
	}
}

func (o *offered) print(w io.Writer, properties []string) error {
	if !o.Offered {
		_, err := fmt.Fprintf(w, "no update for %s\n", strings.Join(properties, " "))
		return err
	}
	_, err := fmt.Fprintf(w, "%s is offered, verified by a trusted key\nworkflow %s\n", visible(o.Update),
		visible(o.WorkflowID))
	for i, s := range o.Steps {
		var files []string
		for _, f := range s.Files {
			files = append(files, fmt.Sprintf("%s (%s)", f.Name, inBytes(int(f.Size))))
		}
		_, stepErr := fmt.Fprintf(w, "step %d  %s  %s\n", i+1, visible(s.Handler), visible(strings.Join(files, ", ")))
		err = firstError(err, stepErr)
	}
	return err
}

func (t *tool) updateStatusCommand() *cobra.Command {
	u := &updating{connection: &connection{tool: t}}
	c := &cobra.Command{
		Use: "status [flags]", Short: "print how updates stand, from the state in -dir", Args: arguments(0, 0),
		RunE: func(*cobra.Command, []string) error { return u.status() },
	}
	c.Flags().SortFlags = false
	c.Flags().StringVar(&u.dir, "dir", "hubline-updates", "`DIR` of update apply")
	c.Flags().BoolVar(&u.json, "json", false, "print it as JSON")
	return c
}

// updateStatus is how updates stand.
type updateStatus struct {
	Phase      string `json:"phase"`
	WorkflowID string `json:"workflowId,omitempty"`
	Update     string `json:"update,omitempty"`
	Step       int    `json:"step,omitempty"`
	Steps      int    `json:"steps,omitempty"`
	Outcome    string `json:"outcome,omitempty"`
	Details    string `json:"details,omitempty"`
	Unsent     int    `json:"unsentReports"`
}

func statusFrom(s agent.Status) updateStatus {
	out := updateStatus{Phase: s.Phase.String(), WorkflowID: s.WorkflowID, Unsent: s.Unsent, Details: s.Latest.Details}
	if s.Update != (agent.UpdateID{}) {
		out.Update = updateIDText(s.Update)
	}
	if s.Phase != agent.PhaseIdle {
		out.Step, out.Steps = s.Step+1, s.Steps
	}
	if s.Latest.Outcome != agent.InProgress {
		out.Outcome = s.Latest.Outcome.String()
	}
	return out
}

func (u *updating) status() error {
	if _, err := os.Stat(filepath.Join(u.dir, "state")); err != nil {
		return usage("-dir: %s has no state of updates; hubline update apply makes one", u.dir)
	}
	a, err := agent.New(&agent.Options{
		Service: nowhere{}, Fetch: host.NewFetcher(nil), Store: host.NewStore(filepath.Join(u.dir, "state")),
		Handlers:   map[string]agent.Handler{"": &folderHandler{}},
		Verify:     func([]byte, string) error { return errNowhere },
		Properties: agent.Properties{{Name: "none", Value: "none"}},
	})
	if err != nil {
		return err
	}
	s := statusFrom(a.Status())
	if u.json {
		return u.tool.json(s)
	}
	for _, row := range [][2]string{{"phase", s.Phase}, {"update", s.Update}, {"workflow", s.WorkflowID},
		{"result", strings.TrimSpace(s.Outcome + "  " + s.Details)}, {"reports", fmt.Sprintf("%d to send", s.Unsent)}} {
		if row[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(u.tool.out, "%-9s %s\n", row[0], visible(row[1])); err != nil {
			return err
		}
	}
	return nil
}

// nowhere is the service of an agent that is only asked how it stands.
type nowhere struct{}

var errNowhere = errors.New("there is no service")

func (nowhere) Check(context.Context, *agent.Query) (*agent.Answer, error) { return nil, errNowhere }
func (nowhere) Report(context.Context, *agent.Report) error                { return errNowhere }
