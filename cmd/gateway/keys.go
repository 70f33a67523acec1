package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"

	"github.com/spf13/cobra"
)

func newKeys() *cobra.Command {
	keys := &cobra.Command{
		Use:   "keys",
		Short: "Signing keys",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &usageError{fmt.Errorf("want a command; see %s --help", cmd.CommandPath())}
		},
	}
	generate := &cobra.Command{
		Use:   "generate",
		Short: "Make a signing key and print it for tokens.keys",
		Long: `generate prints a new key.

HS256  the part of the configuration that holds it, ready to be pasted.
EdDSA  a PEM file that begins with the part of the configuration that names it:
       gateway keys generate --alg EdDSA > key.pem`,
		Args: noArgs,
	}
	alg := generate.Flags().String("alg", "HS256", "`ALG`: HS256 (one shared secret) or EdDSA (a public key for origins to check tokens with)")
	generate.RunE = func(cmd *cobra.Command, _ []string) error {
		text, err := generateKey(*alg)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	keys.AddCommand(generate)
	return keys
}

// secretBytes is what HS256 secrets are made of: as long as the hash.
const secretBytes = 32

func generateKey(alg string) (string, error) {
	// A kid is never used twice, or tokens of a former key would be checked
	// with a later one.
	id := "k-" + hex.EncodeToString(random(4))
	switch alg {
	case "HS256":
		secret := base64.StdEncoding.EncodeToString(random(secretBytes))
		return fmt.Sprintf("tokens:\n  keys:\n    - {id: %s, alg: HS256, secret: %q, active: true}\n", id, secret), nil
	case "EdDSA":
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return "", fmt.Errorf("generate key: %w", err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			return "", fmt.Errorf("generate key: %w", err)
		}
		block := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		return fmt.Sprintf("# tokens:\n#   keys:\n#     - {id: %s, alg: EdDSA, private_key_file: key.pem, active: true}\n%s", id, block), nil
	}
	return "", &usageError{fmt.Errorf("--alg %q is not known; want HS256 or EdDSA", alg)}
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it ends the process instead
	return b
}
