# shellcheck shell=bash
# The cluster's certificate authority; sourced after settings.sh.
pki=$STATE/pki

# issue NAME SUBJECT EXTENSION [REQ-OPTION...]: creates $STATE/pki/NAME.key and NAME.crt
issue() {
  openssl req -x509 -config <(printf '[req]\ndistinguished_name=dn\n[dn]\n') -days 365 -subj "$2" \
    -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$pki/$1.key" -out "$pki/$1.crt" \
    -addext "$3" "${@:4}" 2>/dev/null || die "no certificate $1"
}

authority() {
  issue ca /CN=cluster-ca basicConstraints=critical,CA:TRUE
  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$pki/service-accounts.key"
  # The API server does not accept the private key here, although it contains the public one.
  openssl pkey -in "$pki/service-accounts.key" -pubout -out "$pki/service-accounts.pub"
}

# client NAME SUBJECT: a client certificate
client() { issue "$1" "$2" extendedKeyUsage=clientAuth -CA "$pki/ca.crt" -CAkey "$pki/ca.key"; }

# server NAME SUBJECT ALT-NAMES: a server certificate that is also a client certificate
server() {
  issue "$1" "$2" extendedKeyUsage=serverAuth,clientAuth -addext "subjectAltName=$3" -CA "$pki/ca.crt" -CAkey "$pki/ca.key"
}

# kubeconfig NAME SUBJECT: prints the kubeconfig of a new client, with its certificates and keys
kubeconfig() {
  client "$1" "$2"
  cat <<YAML
apiVersion: v1
kind: Config
current-context: $CLUSTER
contexts: [{name: $CLUSTER, context: {cluster: $CLUSTER, user: $1}}]
clusters: [{name: $CLUSTER, cluster: {server: "https://$API:6443", certificate-authority-data: $(base64 -w0 "$pki/ca.crt")}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$pki/$1.crt"), client-key-data: $(base64 -w0 "$pki/$1.key")}}]
YAML
}
