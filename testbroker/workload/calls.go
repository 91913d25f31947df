package workload

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// maxVector is the largest initialization vector in bytes.
const maxVector = 64

// decode decodes a member of a request's body.
func decode(name, text string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "%s is not base64: %v", name, err)
	case len(raw) == 0:
		return nil, refuse(http.StatusBadRequest, "%s is missing or empty", name)
	}
	return raw, nil
}

// sign answers with the HMAC of data under the module's primary key. The daemon of the runtime does
// not look at keyId and algo either.
func (s *Server) sign(q *request) (int, any, error) {
	var ask struct {
		Data string `json:"data"`
	}
	if err := q.read(&ask); err != nil {
		return 0, nil, err
	}
	data, err := decode("data", ask.Data)
	if err != nil {
		return 0, nil, err
	}
	key, err := base64.StdEncoding.DecodeString(q.module.PrimaryKey)
	if err != nil || len(key) == 0 {
		return 0, nil, refuse(http.StatusForbidden, "module %q has no key: it has a certificate", q.module.ModuleID)
	}
	if q.take(s, FaultWrongDigest) != nil {
		key = s.secret[:]
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(data)
	return http.StatusOK, struct {
		Digest []byte `json:"digest"`
	}{mac.Sum(nil)}, nil
}

// sealer returns the cipher of a module, for initialization vectors of a length, and what it
// authenticates besides the text.
func (s *Server) sealer(m hubdata.Device, vector int) (aead cipher.AEAD, about []byte, err error) {
	if vector > maxVector {
		return nil, nil, refuse(http.StatusBadRequest, "initializationVector has %d bytes, at most %d are allowed", vector,
			maxVector)
	}
	block, err := aes.NewCipher(s.secret[:])
	if err == nil {
		aead, err = cipher.NewGCMWithNonceSize(block, vector)
	}
	return aead, []byte(m.ID + "/" + m.ModuleID + "/" + m.GenerationID), err
}

// encrypt seals a text with a key of the server. Only the same module can decrypt it, only at this
// server.
func (s *Server) encrypt(q *request) (int, any, error) {
	var ask struct {
		Plaintext string `json:"plaintext"`
		Vector    string `json:"initializationVector"`
	}
	if err := q.read(&ask); err != nil {
		return 0, nil, err
	}
	plain, err := decode("plaintext", ask.Plaintext)
	if err != nil {
		return 0, nil, err
	}
	vector, err := decode("initializationVector", ask.Vector)
	if err != nil {
		return 0, nil, err
	}
	aead, about, err := s.sealer(q.module, len(vector))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, struct {
		Ciphertext []byte `json:"ciphertext"`
	}{aead.Seal(nil, vector, plain, about)}, nil
}

// decrypt opens a text that encrypt has sealed.
func (s *Server) decrypt(q *request) (int, any, error) {
	var ask struct {
		Ciphertext string `json:"ciphertext"`
		Vector     string `json:"initializationVector"`
	}
	if err := q.read(&ask); err != nil {
		return 0, nil, err
	}
	sealed, err := decode("ciphertext", ask.Ciphertext)
	if err != nil {
		return 0, nil, err
	}
	vector, err := decode("initializationVector", ask.Vector)
	if err != nil {
		return 0, nil, err
	}
	aead, about, err := s.sealer(q.module, len(vector))
	if err != nil {
		return 0, nil, err
	}
	plain, err := aead.Open(nil, vector, sealed, about)
	if err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "ciphertext was not made with this module, vector and server")
	}
	return http.StatusOK, struct {
		Plaintext []byte `json:"plaintext"`
	}{plain}, nil
}

// modules answers with the list of modules. A module is running while it has a connection.
func (s *Server) modules(*request) (int, any, error) {
	type status struct {
		RuntimeStatus struct {
			Status string `json:"status"`
		} `json:"runtimeStatus"`
	}
	type module struct {
		ID     string `json:"id"`
		Name   string `json:"name"`
		Type   string `json:"type"`
		Config struct {
			Settings struct{} `json:"settings"`
			Env      []string `json:"env"`
		} `json:"config"`
		Status status `json:"status"`
	}
	all := []module{}
	for _, m := range s.registered() {
		row := module{ID: m.ModuleID, Name: m.ModuleID, Type: "docker"}
		row.Config.Env = []string{}
		row.Status.RuntimeStatus.Status = "stopped"
		if s.hub.Connections(m.ID+"/"+m.ModuleID) > 0 {
			row.Status.RuntimeStatus.Status = "running"
		}
		all = append(all, row)
	}
	return http.StatusOK, struct {
		Modules []module `json:"modules"`
	}{all}, nil
}

// mustJSON encodes a value that is always encodable.
func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
