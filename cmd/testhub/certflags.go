package main

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/hubline-iot/hubline/testbroker"
)

// certSettings are the flags about the certificates of the hub and of the provisioning service.
type certSettings struct {
	names     []string
	authority string // file
	read      *tls.Certificate
}

// flags registers the flags.
func (s *certSettings) flags(f *flag.FlagSet) {
	f.Func("name", "make the certificate valid for this `name` or IP address too, by which clients reach testhub; "+
		"repeatable", func(v string) error {
		if v == "" {
			return errors.New("want a name or an IP address")
		}
		s.names = append(s.names, v)
		return nil
	})
	f.StringVar(&s.authority, "authority", "", "PEM `file` with the certificate of an authority and its key, which signs "+
		"the certificate of testhub (default: testhub makes one)")
}

// apply reads the authority and sets the options of a hub.
func (s *certSettings) apply(o *testbroker.Options) error {
	authority, err := s.load()
	o.Names, o.Authority = s.names, authority
	return err
}

// load reads the authority once; nil without one.
func (s *certSettings) load() (*tls.Certificate, error) {
	if s.authority == "" || s.read != nil {
		return s.read, nil
	}
	raw, err := os.ReadFile(s.authority)
	if err != nil {
		return nil, fmt.Errorf("flag -authority: %w; give a file that can be read", err)
	}
	pair, err := tls.X509KeyPair(raw, raw)
	if err != nil {
		if !bytes.Contains(raw, []byte("PRIVATE KEY")) || !hasCertificate(raw) {
			err = errors.New("a certificate and its key are not both there") // the parser's text guesses
		}
		return nil, fmt.Errorf("flag -authority: %s: %w; give both in PEM, in one file", s.authority, err)
	}
	s.read = &pair
	return s.read, nil
}

func hasCertificate(raw []byte) bool {
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return true
		}
	}
	return false
}
