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
	"time"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/atomicfile"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/update/adusign"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/classic"
	"github.com/hubline-iot/hubline/update/dpsupdate"
	"github.com/hubline-iot/hubline/update/host"
)

// updates is a way to a service of updates, with what an agent needs besides.
type updates struct {
	service    agent.Service
	properties agent.Properties
	installed  agent.UpdateID
	keys       *adusign.Keys
	fetch      agent.Fetcher
	policy     retrypolicy.Policy
	registrar  *provisioning.Client // nil: the service is in the twin
	session    *session             // nil: it is the provisioning service
}

// close ends the connections.
func (w *updates) close() {
	if w.registrar != nil {
		w.registrar.CloseIdle()
	}
	if w.session != nil {
		_ = w.session.Close()
	}
}

// cause returns the error with which the client of the twin gave up.
func (w *updates) cause() error {
	if w.session == nil {
		return nil
	}
	return w.session.cause()
}

// connect returns the way to the service: the provisioning service for a device that registers, and
// otherwise the hub's twin.
func (u *updating) connect(ctx context.Context) (w *updates, err error) {
	w = &updates{}
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
	if err := u.own(nameOf(to)); err != nil {
		return nil, err
	}
	w.fetch = host.NewFetcher(u.web(to))
	switch {
	case to.Identity == nil:
		return w, u.throughTwin(ctx, to, w)
	case u.target.Transport != "":
		return nil, usage("-transport: updates of a device that registers come over HTTPS here; leave it out")
	}
	if w.registrar, err = to.Registrar(&provisioning.Options{}); err == nil {
		w.service, err = dpsupdate.New(w.registrar, nil)
	}
	return w, err
}

// nameOf returns the id of the device, under any hub.
func nameOf(to *target.Target) string {
	switch {
	case to.Identity != nil:
		return to.Identity.RegistrationID
	case to.Creds.ModuleID != "":
		return to.Creds.DeviceID + "/" + to.Creds.ModuleID
	}
	return to.Creds.DeviceID
}

// own makes the folder that of the device, if there is one. That of another device is refused: what
// is installed or not yet reported there is not this device's.
func (u *updating) own(device string) error {
	if _, err := os.Stat(u.dir); err != nil {
		return nil // of update check, which leaves nothing behind
	}
	file := filepath.Join(u.dir, "device")
	owner, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err = atomicfile.Write(file, []byte(device)); err == nil {
			return nil
		}
	case err == nil && string(owner) != device:
		return usage("-dir: %s has the updates of %q; give %q a folder of its own", u.dir, owner, device)
	}
	if err != nil {
		return usage("-dir: %v", err)
	}
	return nil
}

// throughTwin makes the service of a hub's twin.
func (u *updating) throughTwin(ctx context.Context, to *target.Target, w *updates) error {
	if !to.HasTwin() {
		return usage("update: it needs a device that registers (-id-scope, -registration-id), or a hub over MQTT or AMQP, " +
			"whose twin carries Device Update")
	}
	to.Announce(classic.ModelID)
	var err error
	if w.session, err = u.session(ctx, to, &device.Options{}); err != nil {
		return err
	}
	if w.service, err = classic.New(w.session.Client); err == nil {
		err = u.open(ctx, w.session)
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
