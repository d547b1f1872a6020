use std::collections::BTreeMap;

use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use twice_provider_sim::{Counters, Object, Request, Switch};

use super::Saga;
use crate::crew::ProviderProcess;
use crate::project::{API_KEY, Project};

/// The services of a saga, each a process of its own. Dropping them kills them.
pub struct Services {
    runtime: Runtime,
    services: Vec<Service>,
}

struct Service {
    tools: &'static [&'static str],
    process: ProviderProcess,
}

/// An object in the books of one of the services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The service, by the first of its tools.
    pub service: &'static str,
    /// The object. Its id is one of that service alone.
    pub object: Object,
}

/// A request in the log of one of the services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The service, by the first of its tools.
    pub service: &'static str,
    /// The request.
    pub request: Request,
}

impl Services {
    /// Starts those of a saga: `program provider-sim`, once for each.
    ///
    /// # Panics
    /// When one does not come up; as everything here, because a test that cannot do what it wants to has failed.
    #[must_use]
    pub fn start(program: &str, saga: &Saga) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let start = |tools: &&'static [&'static str]| {
            let process = ProviderProcess::start(program, &[]);
            Service { tools, process }
        };
        Self { runtime, services: saga.services.iter().map(start).collect() }
    }

    /// The project with the addresses and keys of these services in its environment.
    #[must_use]
    pub fn serve(&self, project: Project) -> Project {
        let tools = |service: &Service| service.tools.iter().map(|tool| tool.to_uppercase());
        self.services.iter().fold(project, |project, service| {
            tools(service).fold(project, |project, tool| {
                project
                    .with_env(&format!("{tool}_URL"), service.process.url())
                    .with_env(&format!("{tool}_API_KEY"), API_KEY)
            })
        })
    }

    /// From now on the service of this tool fails so.
    ///
    /// # Panics
    /// When there is none, or a switch is not right.
    pub fn switch(&self, tool: &str, switches: &[Switch]) {
        self.runtime.block_on(self.of(tool).process.switch(switches));
    }

    /// Sends the service of this tool a request past the ledger.
    ///
    /// # Panics
    /// When it does not do what is asked.
    pub fn interfere(&self, tool: &str, path: &str, body: &Value) {
        self.runtime.block_on(self.of(tool).process.post(path, "a stranger's key", body));
    }

    /// All books: every object of every service.
    ///
    /// # Panics
    /// When a service cannot tell.
    #[must_use]
    pub fn objects(&self) -> Vec<Kept> {
        let books = self.each(|process| self.runtime.block_on(process.objects()));
        books
            .flat_map(|(service, objects)| {
                objects.into_iter().map(move |object| Kept { service, object })
            })
            .collect()
    }

    /// What each service counted, by the first of its tools.
    ///
    /// # Panics
    /// When a service cannot tell.
    #[must_use]
    pub fn counters(&self) -> BTreeMap<&'static str, Counters> {
        self.each(|process| self.runtime.block_on(process.counters())).collect()
    }

    /// The requests to all services in the order in which they arrived. Two of different services within one millisecond may
    /// stand in either order.
    ///
    /// # Panics
    /// When a service cannot tell.
    #[must_use]
    pub fn log(&self) -> Vec<Asked> {
        let logs = self.each(|process| self.runtime.block_on(process.requests()));
        let mut all: Vec<Asked> = logs
            .flat_map(|(service, log)| {
                log.into_iter().map(move |request| Asked { service, request })
            })
            .collect();
        // The sort is stable, so that requests to one service stay in the order of its own log.
        all.sort_by_key(|asked| asked.request.at_ms);
        all
    }

    /// How many requests arrived for an operation of the services, e.g. `authorization` or `release_lookup`.
    ///
    /// # Panics
    /// When a service cannot tell.
    #[must_use]
    pub fn requests(&self, operation: &str) -> u64 {
        let counted = self.counters().into_values();
        counted.filter_map(|counters| Some(counters.operations.get(operation)?.requests)).sum()
    }

    fn of(&self, tool: &str) -> &Service {
        let service = self.services.iter().find(|service| service.tools.contains(&tool));
        service.unwrap_or_else(|| panic!("no service offers {tool}"))
    }

    fn each<T>(
        &self,
        ask: impl Fn(&ProviderProcess) -> T,
    ) -> impl Iterator<Item = (&'static str, T)> {
        self.services.iter().map(move |service| (service.tools[0], ask(&service.process)))
    }
}
