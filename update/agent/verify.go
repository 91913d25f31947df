package agent

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// verify returns the manifest of an offer that this device may install, and its text. Before that
// no byte of the update is fetched. have is the update that the device has.
func (a *Agent) verify(ctx context.Context, o *Offer, have UpdateID) (*Manifest, []byte, error) {
	if a.opt.RootKeys != nil && o.RootKeysURL != "" {
		text, err := a.fetchAll(ctx, o.RootKeysURL, maxRootKeys)
		if err == nil {
			err = a.opt.RootKeys(text)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if err := a.opt.Verify(o.Manifest, o.Signature); err != nil {
		return nil, nil, err
	}
	text, err := a.whole(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	m, err := ParseManifest(text)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !m.fits(a.opt.Properties):
		return nil, nil, errDevice
	case m.ID.olderThan(have) && !a.older(have, m.ID):
		return nil, nil, errOlder
	}
	return m, text, a.possible(m, o)
}

const maxRootKeys = 64 << 10

var (
	errDevice = fault(transport.Invalid, "offer: the update is for another kind of device: none of its compatibility "+
		"entries has Options.Properties")
	errOlder = fault(transport.Conflict, "offer: the update is older than the installed one; publish it with a higher "+
		"version, or allow it by Options.AllowOlder")
	errRootKeys = fault(transport.TooLarge, "offer: the package of root keys has more than 64 KB")
)

// older asks Options.AllowOlder.
func (a *Agent) older(from, to UpdateID) (ok bool) {
	if a.opt.AllowOlder != nil {
		_ = callback.Run("Options.AllowOlder of package agent", func() { ok = a.opt.AllowOlder(from, to) })
	}
	return ok
}

// possible returns what is missing to do all steps, nil if nothing is.
func (a *Agent) possible(m *Manifest, o *Offer) error {
	targets := map[string]bool{}
	for i := range m.Steps {
		s := &m.Steps[i]
		h := a.handler(s)
		if h == nil {
			return fault(transport.Unsupported, "offer: no handler for "+texts.Quote(peerText(s.Handler))+
				"; add it to Options.Handlers")
		}
		if e, ok := h.(Exclusive); ok {
			if targets[e.Target()] {
				return fault(transport.Unsupported, "offer: two steps change "+e.Target()+
					", and could not both be undone; publish one step for it")
			}
			targets[e.Target()] = true
		}
		for _, f := range s.files(m, o) {
			if f.URL == "" {
				return fault(transport.Invalid, "offer: no URL for file "+texts.Quote(peerText(f.ID)))
			}
		}
	}
	return nil
}

// handler returns the handler of a step, nil if there is none.
func (a *Agent) handler(s *Step) Handler {
	if h := a.opt.Handlers[s.Handler]; h != nil {
		return h
	}
	return a.opt.Handlers[""]
}

// files returns the files of a step, with their URLs.
func (s *Step) files(m *Manifest, o *Offer) (files []File) {
	ids := s.Files
	if s.Manifest != "" {
		ids = append([]string{s.Manifest}, ids...)
	}
	for _, id := range ids {
		f := *fileByID(m.Files, id)
		f.URL = o.URLs[id]
		f.Related = append([]File(nil), f.Related...)
		for i := range f.Related {
			f.Related[i].URL = o.URLs[f.Related[i].ID]
		}
		files = append(files, f)
	}
	return files
}

// fits reports whether a device with these properties is of one of the kinds that m is for.
func (m *Manifest) fits(device Properties) bool {
	for _, kind := range m.Compatibility {
		if kind.within(device) {
			return true
		}
	}
	return false
}

// within reports whether the device has all properties of a kind. Names and values are compared
// without regard to case, as the service does.
func (p Properties) within(device Properties) bool {
	for i := range p {
		found := false
		for j := range device {
			found = found || texts.EqualFold(shortName(p[i].Name), shortName(device[j].Name)) &&
				texts.EqualFold(p[i].Value, device[j].Value)
		}
		if !found {
			return false
		}
	}
	return true
}

// shortName makes the old names deviceManufacturer and deviceModel the new ones.
func shortName(name string) string {
	short := strings.TrimPrefix(name, "device")
	if texts.EqualFold(short, "manufacturer") || texts.EqualFold(short, "model") {
		return short
	}
	return name
}

// olderThan reports whether id is a version of the installed update that is lower, or that cannot
// be compared with it.
func (id UpdateID) olderThan(installed UpdateID) bool {
	if !texts.EqualFold(id.Provider, installed.Provider) || !texts.EqualFold(id.Name, installed.Name) {
		return false
	}
	order, ok := compareVersions(id.Version, installed.Version)
	return !ok || order < 0
}

// compareVersions compares versions of numbers with dots between them. Missing numbers are 0.
func compareVersions(a, b string) (order int, ok bool) {
	for a != "" || b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		if !digits(x) || !digits(y) {
			return 0, false
		}
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		switch {
		case order != 0:
		case len(x) != len(y):
			order = len(x) - len(y)
		default:
			order = strings.Compare(x, y)
		}
	}
	return order, true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// whole returns the text of a verified manifest. Where texts must be short, as in a twin, the
// signed one names a file that has the manifest as its member updateManifest: a text or an object.
func (a *Agent) whole(ctx context.Context, o *Offer) ([]byte, error) {
	const member = "detachedManifestFileId"
	var r manifestReader
	raw := jsonscan.Value(o.Manifest, member)
	if raw == nil {
		return o.Manifest, nil
	}
	f := fileByID(r.files("files", jsonscan.Value(o.Manifest, "files")), jsonscan.Text(raw))
	switch {
	case r.err != nil:
		return nil, r.err
	case f == nil:
		return nil, badManifest(member, "is not the id of a file in files")
	case f.Size > 2*MaxManifest:
		return nil, badManifest(member, "names a file with more than 128 KB")
	}
	f.URL = o.URLs[f.ID]
	if f.URL == "" {
		return nil, badManifest(member, "names a file without a URL")
	}
	body := a.open(ctx, f, f.URL)
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	inner := jsonscan.Value(text, "updateManifest")
	if len(inner) > 0 && inner[0] == '"' {
		return []byte(jsonscan.Text(inner)), nil
	}
	return inner, nil
}

// fetchAll reads a text of at most limit bytes, with retries.
func (a *Agent) fetchAll(ctx context.Context, url string, limit int64) (text []byte, err error) {
	var damage errfilter.Damage
	err = a.retrier().Do(ctx, func(ctx context.Context) error {
		limited, cancel := lifetime.WithinTime(ctx, 5*times.ProgressTime)
		defer cancel()
		body, err := a.opt.Fetch.Fetch(limited, url, 0)
		if err == nil {
			defer body.Close()
			text, err = io.ReadAll(io.LimitReader(body, limit+1))
		}
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			return errSlow
		}
		return damage.Judge(asNetwork(err))
	})
	if err == nil && int64(len(text)) > limit {
		return nil, errRootKeys
	}
	return text, err
}

// retrier repeats what the worker does.
func (a *Agent) retrier() *retrypolicy.Retrier {
	return &retrypolicy.Retrier{Policy: a.opt.Policy, Timeout: -1, Classify: a.judge,
		OnRetry: func(_ int, _ time.Duration, err error) { a.failing(err) }}
}
