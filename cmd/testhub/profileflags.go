package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker"
)

// profileSettings are the flags about connection profiles.
type profileSettings struct {
	mqttv5 bool     // the first hub has the MQTT v5 profile
	linked []string // names of further hubs that have it
	topics []string // templates of custom topics
}

// flags registers the flags.
func (s *profileSettings) flags(f *flag.FlagSet) {
	f.Func("profile", "the connection `profile` of the hub, classic or mqttV5, a preview of the service; name=profile "+
		"for the hub of a -link; repeatable (default classic)", func(v string) error {
		name, profile, linked := strings.Cut(v, "=")
		if !linked {
			name, profile = "", v
		}
		switch mqttv5 := strings.EqualFold(profile, nextwire.ProfileMQTTv5); {
		case !mqttv5 && !strings.EqualFold(profile, nextwire.ProfileClassic), linked && name == "":
			return errors.New("want classic or mqttV5, or name=classic or name=mqttV5")
		case !linked:
			s.mqttv5 = mqttv5
		case mqttv5:
			s.linked = append(s.linked, name)
		}
		return nil
	})
	f.Func("topic", "let devices publish on custom topics of this `template` too, such as site/{deviceId}/up, if the "+
		"-profile is mqttV5; repeatable", func(v string) error {
		s.topics = append(s.topics, v)
		return nil
	})
}

// complete checks the settings.
func (s *profileSettings) complete(all *settings) error {
	for _, name := range s.linked {
		if !slices.ContainsFunc(all.dps.hubs, func(h hubSettings) bool { return strings.EqualFold(h.name, name) }) {
			return fmt.Errorf("flag -profile: there is no hub named %s; add -link %s", name, name)
		}
	}
	switch {
	case !s.mqttv5 && len(s.topics) > 0:
		return errors.New("flag -topic: custom topics are those of a hub with the MQTT v5 profile; add -profile mqttV5")
	case !s.mqttv5:
		return nil
	case all.broker:
		return errors.New("flag -profile: a plain broker has none; leave out -broker or -profile")
	case all.edge.gateway != "" || len(all.edge.modules) > 0:
		return errors.New("flag -profile: a hub with the profile mqttV5 has neither gateway nor modules; leave out " +
			"-gateway, -module or -profile")
	}
	return nil
}

// forHub returns the options of the first hub; nil for a classic one. The routes are those of the
// command line.
func (s *profileSettings) forHub(routes []string) *testbroker.MQTTv5Options {
	if !s.mqttv5 {
		return nil
	}
	return &testbroker.MQTTv5Options{Topics: s.topics, Routes: routes}
}

// forLinked returns the options of a linked hub; nil for a classic one.
func (s *profileSettings) forLinked(name string) *testbroker.MQTTv5Options {
	if !slices.ContainsFunc(s.linked, func(l string) bool { return strings.EqualFold(l, name) }) {
		return nil
	}
	return &testbroker.MQTTv5Options{}
}

// any reports whether a hub has the profile.
func (s *profileSettings) any() bool { return s.mqttv5 || len(s.linked) > 0 }

// about says what a person must know of a hub with the profile; empty for a classic one.
func (s *profileSettings) about(routes []string) string {
	if !s.mqttv5 {
		return ""
	}
	routed := "everything is routed to the event hub, and the service has no route at first"
	if routes != nil {
		routed = "routed to the event hub: " + strings.Join(routes, ", ")
	}
	return nextwire.ProfileMQTTv5 + ", a public preview that may change; " + routed
}

// certify gives an entry that has nothing else to prove who it is a certificate, because a hub with
// the profile takes no keys.
func (e *entry) certify() {
	if _, _, isModule := cutModule(e.id); isModule || e.authority || len(e.thumbprints) > 0 {
		return
	}
	cert := testbroker.NewClientCert(e.id, time.Time{}, time.Time{})
	e.cert, e.thumbprints = &cert, []string{testbroker.Thumbprint(cert.Leaf)}
}

// writeCertificate writes the certificate of a device that testhub made, and its key, into a file
// beside that of -ca. It returns the path; empty if there is none.
func (r *registry) writeCertificate(id, ca string) (path string, err error) {
	i := slices.IndexFunc(r.entries, func(e entry) bool { return e.id == id })
	if i < 0 {
		return "", nil
	}
	content, err := r.entries[i].pem()
	if content == nil {
		return "", err
	}
	return writeFile("ca", filepath.Join(filepath.Dir(ca), "testhub-"+url.PathEscape(id)+".pem"), content, 0o600)
}

// pem returns the certificate that testhub made, with its key; nil if there is none.
func (e *entry) pem() ([]byte, error) {
	if e.cert == nil {
		return nil, nil
	}
	key, err := x509.MarshalPKCS8PrivateKey(e.cert.PrivateKey)
	if err != nil {
		return nil, err
	}
	leaf := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.cert.Leaf.Raw})
	return append(leaf, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), nil
}
