# shellcheck shell=bash
# The cluster's certificate authority; sourced after settings.sh.
pki=$STATE/pki

# issue NAME SUBJECT EXTENSION [REQ-OPTION...]: $STATE/pki/NAME.key and NAME.crt
issue() {
  openssl req -x509 -config <(printf '[req]\ndistinguished_name=dn\n[dn]\n') -days 365 -subj "$2" \
    -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$pki/$1.key" -out "$pki/$1.crt" \
    -addext "$3" "${@:4}" 2>/dev/null || die "no certificate $1"
}

authority() {
  issue ca /CN=cluster-ca basicConstraints=critical,CA:TRUE
  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$pki/service-accounts.key"
  # The API server takes no private key for this, though the public one is in it.
  openssl pkey -in "$pki/service-accounts.key" -pubout -out "$pki/service-accounts.pub"
}

# client NAME SUBJECT: a certificate to call with
client() { issue "$1" "$2" extendedKeyUsage=clientAuth -CA "$pki/ca.crt" -CAkey "$pki/ca.key"; }

# server NAME SUBJECT ALT-NAMES: a certificate to be called at, and to call with
server() {
  issue "$1" "$2" extendedKeyUsage=serverAuth,clientAuth -addext "subjectAltName=$3" -CA "$pki/ca.crt" -CAkey "$pki/ca.key"
}

# kubeconfig NAME SUBJECT: a new client's kubeconfig, complete in itself, on stdout
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
