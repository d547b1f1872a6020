//! TypeScript: checked by tsc, then as JavaScript.

use std::process::Command;

use crate::error::BuildError;
use crate::job::{Job, Made};
use crate::language::Language;
use crate::recipe::javascript;

const INSTALL: &str =
    "npm install --save-exact componentize-qjs@0.4.5 esbuild@0.28.2 typescript@7.0.2";

/// For the author's tsconfig.json to extend, and for a node that has none.
const CONFIG: &str = r#"{
  "compilerOptions": {
    "target": "ES2023",
    "lib": ["ES2024"],
    "types": [],
    "module": "ESNext",
    "moduleResolution": "bundler",
    "resolveJsonModule": true,
    "isolatedModules": true,
    "strict": true,
    "skipLibCheck": true,
    "noEmit": true,
    "paths": {
      "twice-node": ["./sdk/typescript/src/index.ts"],
      "twice-node/main": ["../../main.ts"]
    }
  },
  "files": ["../../main.ts", "./sdk/typescript/src/entry.ts", "./sdk/typescript/src/world.d.ts"],
  "include": ["../../**/*.d.ts"],
  "exclude": ["../../target", "../../**/node_modules"]
}
"#;

pub(crate) fn build(job: &mut Job<'_>) -> Result<Made, BuildError> {
    let tool = job.find(&["tsc"], INSTALL)?;
    let ours = job.work.join("tsconfig.json");
    job.write(&ours, CONFIG.as_bytes())?;
    let own = job.dir.join("tsconfig.json");
    let config = if own.is_file() { own } else { ours };
    job.run(Command::new(tool).args(["--noEmit", "--project"]).arg(config), INSTALL)?;
    javascript::component(job, Language::TypeScript, INSTALL)
}
