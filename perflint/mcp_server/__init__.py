"""`perflint mcp`: perflint's tools for coding agents, through the Model Context Protocol."""
