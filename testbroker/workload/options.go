package workload

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Options are the settings of a server. The zero value of each field means its default.
type Options struct {
	// Device restricts the server to the modules of one device, as the daemon on that device does.
	// Default: the modules of all devices.
	Device string
	// GatewayHostName is IOTEDGE_GATEWAYHOSTNAME in [Server.Environment]. Default: the name of the
	// hub's gateway; without a gateway, the host name of the hub.
	GatewayHostName string
	// APIVersions are the accepted values of api-version, oldest first. The last one is
	// IOTEDGE_APIVERSION in [Server.Environment]. Default: those of the runtime's daemon, 2018-06-28
	// to 2022-08-03.
	APIVersions []string
	// Overlap makes the trust bundle contain the authorities that [testbroker.Hub.RotateCertificate]
	// has replaced, after the present one. Default: only the present one.
	Overlap bool
	// ManifestTrustBundle is the answer to GET /manifest-trust-bundle, certificates in PEM. Default:
	// an empty text.
	ManifestTrustBundle []byte
	// CertificateLife is how long an issued certificate is valid if the request does not ask for less.
	// Default: 90 days.
	CertificateLife time.Duration
	// Seed, unless zero, makes the draws of faults with a Probability repeatable.
	Seed uint64
}

const defaultCertificateLife = 90 * 24 * time.Hour

func knownAPIVersions() []string {
	return []string{
		"2018-06-28", "2019-01-30", "2019-10-22", "2019-11-05", "2020-07-07", "2021-12-07", "2022-08-03",
	}
}

// withDefaults returns a copy with the defaults filled in, or why a setting is invalid.
func (o *Options) withDefaults() (Options, error) {
	if o == nil {
		o = &Options{}
	}
	full := *o
	full.APIVersions = slices.Clone(o.APIVersions)
	if len(full.APIVersions) == 0 {
		full.APIVersions = knownAPIVersions()
	}
	full.CertificateLife = cmp.Or(o.CertificateLife, defaultCertificateLife)
	if full.CertificateLife < 0 {
		return Options{}, fmt.Errorf("workload: Options.CertificateLife: %s is negative", o.CertificateLife)
	}
	full.ManifestTrustBundle = slices.Clone(o.ManifestTrustBundle)
	if err := checkPEM(full.ManifestTrustBundle); err != nil {
		return Options{}, fmt.Errorf("workload: Options.ManifestTrustBundle: %w; give certificates in PEM", err)
	}
	return full, nil
}

// checkPEM returns why a text is not a sequence of certificates.
func checkPEM(text []byte) error {
	for len(text) > 0 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return errors.New("not PEM")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
	}
	return nil
}
