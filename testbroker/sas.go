package testbroker

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const tokenScheme = "SharedAccessSignature"

// A token is a shared access signature taken to pieces.
type token struct {
	resource string // the text after "sr=", exactly as received
	sig      []byte // decoded
	expiry   string // the text after "se=", exactly as received
	expires  int64  // the same, seconds since 1970
	policy   string // empty = signed with a key of the identity
}

// parseToken reads
//
//	"SharedAccessSignature" SP field *( "&" field )
//
// with the fields sr, sig, se and skn in any order. Unknown fields are ignored.
func parseToken(s string) (token, error) {
	scheme, fields, ok := strings.Cut(s, " ")
	if !ok || !strings.EqualFold(scheme, tokenScheme) {
		return token{}, errors.New("token does not begin with " + tokenScheme)
	}
	var t token
	seen := make(map[string]bool, 4)
	for field := range strings.SplitSeq(fields, "&") {
		name, value, _ := strings.Cut(field, "=")
		name = strings.ToLower(name)
		if seen[name] {
			return token{}, fmt.Errorf("token names %s twice", name)
		}
		seen[name] = true
		switch name {
		case "sr":
			t.resource = value
		case "sig":
			if strings.ContainsAny(value, "+/=") {
				return token{}, errors.New("signature of the token is not percent-encoded")
			}
			text, err := url.PathUnescape(value)
			if err != nil {
				return token{}, fmt.Errorf("signature of the token: %w", err)
			}
			if t.sig, err = base64.StdEncoding.DecodeString(text); err != nil {
				return token{}, fmt.Errorf("signature of the token: %w", err)
			}
		case "se":
			n, err := strconv.ParseUint(value, 10, 63)
			if err != nil {
				return token{}, fmt.Errorf("expiry of the token: %w", err)
			}
			t.expiry, t.expires = value, int64(n)
		case "skn":
			text, err := url.PathUnescape(value)
			if err != nil {
				return token{}, fmt.Errorf("policy of the token: %w", err)
			}
			t.policy = text // present but empty is the same as absent
		}
	}
	switch {
	case t.resource == "":
		return token{}, errors.New("token has no resource")
	case len(t.sig) == 0:
		return token{}, errors.New("token has no signature")
	case t.expiry == "":
		return token{}, errors.New("token has no expiry")
	}
	return t, nil
}

// signedBy says whether one of the keys made the signature. What was signed is the resource as it
// stands in the token: clients encode it in different ways, so making the text anew would reject
// some of them.
func (t token) signedBy(keys keyPair) bool {
	for _, key := range [...]string{keys.primary, keys.secondary} {
		raw, err := base64.StdEncoding.DecodeString(key)
		if err != nil || len(raw) == 0 {
			continue
		}
		mac := hmac.New(sha256.New, raw)
		mac.Write([]byte(t.resource + "\n" + t.expiry))
		if hmac.Equal(mac.Sum(nil), t.sig) {
			return true
		}
	}
	return false
}

// covers says whether the token's resource is the target or lies above it, by whole path segments.
// The resource may be percent-encoded once or, its device id, twice.
func (t token) covers(host string, id identity) bool {
	target := strings.Split(host+"/"+id.resource(), "/")
	text := t.resource
	for range 2 {
		decoded, err := url.PathUnescape(text)
		if err != nil {
			return false
		}
		if text = decoded; isPrefix(strings.Split(text, "/"), target) {
			return true
		}
	}
	return false
}

// isPrefix compares by segment: the first, the host, in any letter case, the others exactly.
func isPrefix(path, target []string) bool {
	if len(path) > len(target) || !strings.EqualFold(path[0], target[0]) {
		return false
	}
	for i, segment := range path[1:] {
		if segment != target[i+1] {
			return false
		}
	}
	return true
}

// maxSeconds keeps expiry times within what time.Time and time.Duration can hold.
const maxSeconds = 1 << 36

// deadline is the moment from which the token is worth nothing.
func (t token) deadline(grace time.Duration) time.Time {
	return time.Unix(min(t.expires, maxSeconds), 0).Add(grace)
}
