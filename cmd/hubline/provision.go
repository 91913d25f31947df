package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/transport"
)

// registering has the flags of hubline provision.
type registering struct {
	*connection
	payload, save, issue string
}

func (t *tool) provisionCommand() *cobra.Command {
	r := &registering{}
	c := &cobra.Command{
		Use: "provision [flags]", Short: "register with the provisioning service", Long: helpText("provision"),
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return r.run(c.Context()) },
	}
	c.Flags().StringVar(&r.payload, "payload", "", "`JSON` for the allocation function of the back end")
	c.Flags().StringVar(&r.save, "save", "", "new `FILE` for the connection string, which only its owner can read")
	c.Flags().StringVar(&r.issue, "issue", "", "new `FILE` for a certificate that the service issues, with its key, for "+
		"-cert; only its owner can read it")
	r.connection = t.connection(c)
	r.target.Registering = true
	return c
}

func (r *registering) run(ctx context.Context) error {
	policy, err := r.retries()
	if err != nil {
		return err
	}
	var payload []byte
	if r.payload != "" {
		payload = []byte(r.payload)
	}
	if payload != nil && !json.Valid(payload) {
		return usage("-payload: not JSON; write {\"site\":\"roof\"}")
	}
	to, err := r.find()
	if err != nil {
		return err
	}
	save, err := create("-save", r.save)
	if err != nil {
		return err
	}
	issue, err := create("-issue", r.issue)
	if err != nil {
		return errors.Join(err, save.remove())
	}
	assignment, err := r.obtain(ctx, to, &provisioning.Options{Payload: payload, Policy: policy}, save, issue)
	if err != nil {
		return errors.Join(err, save.remove(), issue.remove())
	}
	out := map[string]any{"hub": assignment.Hub, "deviceId": assignment.DeviceID, "substatus": assignment.Substatus}
	if assignment.ConnectionProfile != "" {
		out["connectionProfile"] = assignment.ConnectionProfile
	}
	if len(assignment.Payload) > 0 {
		out["payload"] = json.RawMessage(assignment.Payload)
	}
	return r.tool.json(out)
}

// register registers, within the time of -connect-timeout.
func (r *registering) register(ctx context.Context, to *target.Target, o *provisioning.Options) (
	*provisioning.Assignment, error) {
	limit, cancel := limited(ctx, r.wait)
	defer cancel()
	var last error
	o.OnEvent = func(e provisioning.Event) {
		if e.Err != nil {
			last = e.Err
		}
		if e.Err != nil && e.Delay > 0 {
			r.say("again in %v: %v", e.Delay.Round(time.Millisecond), e.Err)
		}
	}
	assignment, err := to.Register(limit, o)
	if err != nil && limit.Err() != nil && ctx.Err() == nil && last != nil {
		err = fmt.Errorf("no answer within %v: %w", r.wait, last)
	}
	return assignment, err
}

// obtain registers, and writes the files of -save and -issue.
func (r *registering) obtain(ctx context.Context, to *target.Target, o *provisioning.Options, save, issue *secretFile) (
	*provisioning.Assignment, error) {
	var key *ecdsa.PrivateKey
	if issue != nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
		if o.CSR, err = dpscert.Request(to.Identity.RegistrationID, key); err != nil {
			return nil, err
		}
	}
	assignment, err := r.register(ctx, to, o)
	if err == nil && issue != nil {
		err = issue.writeCertificate(ctx, assignment.Chain, key)
	}
	if err == nil && save != nil {
		var text transport.Secret
		if text, err = to.ConnectionString(); err == nil {
			err = save.write(text.Reveal() + "\n")
		}
	}
	return assignment, err
}

// secretFile is a file that only its owner can read. Nil: there is none.
type secretFile struct{ file *os.File }

// create makes the file of a flag before the registration, which counts as one even if nothing can
// be kept of it. An existing file is not overwritten.
func create(flag, name string) (*secretFile, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, usage("%s: %v", flag, err)
	}
	return &secretFile{file}, nil
}

// write writes the text, and closes the file.
func (s *secretFile) write(text string) error {
	_, err := s.file.WriteString(text)
	return errors.Join(err, s.file.Close())
}

// writeCertificate writes a certificate with its chain and its key, and closes the file.
func (s *secretFile) writeCertificate(ctx context.Context, chain [][]byte, key *ecdsa.PrivateKey) error {
	if _, err := dpscert.Certificate(chain, key)(ctx); err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, certificate := range chain {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: certificate}) // never fails
	}
	_ = pem.Encode(&text, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return s.write(text.String())
}

// remove closes and removes a file that is of no use.
func (s *secretFile) remove() error {
	if s == nil {
		return nil
	}
	_ = s.file.Close() // the first error says more
	return os.Remove(s.file.Name())
}
