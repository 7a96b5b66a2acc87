"""What is measured, and with what: agents, empty servers, kubelets, the client, configurations."""
